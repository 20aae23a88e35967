// Package vaultfaults holds tests of everything that Vault, or whoever answers in
// its place, can do wrong: every wrong answer at every request that the broker
// makes of Vault.
//
//	operations_test.go   a whole broker: what the caller, Vault and the MCP server see
//	upkeep_test.go       logins, renewals and epochs, with time held still
//
// With the build tag real the same is done to Vault itself (real_test.go): sealed,
// killed, and with an audit device that cannot write; and to the leader of three,
// under load (cluster_test.go).
package vaultfaults
