// Package interop holds the exchange against five identity providers, by
// decisions from a file and over the client that the program uses. What it finds is
// written to docs/providers.md, and a test holds that document to the run:
//
//	go test -tags interop ./test/interop           # does it still hold?
//	go test -tags interop ./test/interop -update   # write the document anew
//
// The tests are behind the build tag interop and take more than five minutes,
// nearly all of it waiting for a subject token of zitadel to expire. They need
// Java besides what the tests behind the tag real need.
package interop
