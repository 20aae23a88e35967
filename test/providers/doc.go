// Package providers exchanges tokens at identity providers that nobody here
// wrote, by decisions from a file and over the client that the program uses.
// Where a provider does something else than RFC 8693 says, the row expects what
// it does and what the broker makes of it.
//
// The tests are behind the build tag real.
package providers
