// Package providers exchanges tokens at identity providers that nobody here
// wrote, by decisions from a file and over the client that the program uses.
// Where a provider does something else than RFC 8693 says, the row expects what
// it does and what the broker makes of it.
//
// Behind the build tag real stand dex and zitadel's example, each by itself.
// Behind the tag interop stands one table of five providers, Keycloak among them,
// which needs Java and takes more than five minutes, nearly all of it waiting for
// a subject token of zitadel to expire. What it finds is docs/providers.md, and
// a test holds that document to the run:
//
//	go test -tags interop ./test/providers           # does it still hold?
//	go test -tags interop ./test/providers -update   # write the document anew
package providers
