// Package crash holds tests that end the real program with SIGKILL, at every
// step of an operation and at any moment under load, over real Vault. Build tag
// real; `make faults` runs them and prints one line of what was found.
//
// What is judged after each death (verdict_test.go):
//
//   - no hold outlives its epoch: what Vault's storage has is counted, key by key
//   - no "safe" for a call that ran, and no call runs twice: the server's own count
//   - the audit is one chain, and says what the rows say
//   - no token, bearer or key is in a log, an answer or the database
//
// control_test.go breaks the broker on purpose and asserts that each of these is
// reported. What a power failure leaves is not tried: SIGKILL loses no page that
// was written.
package crash
