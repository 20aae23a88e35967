// Package counterparts runs, for a test, programs that the broker talks to and
// that nobody here wrote: what the broker claims about a protocol is held
// against other people's reading of it.
//
//	process.go  how any of them is started and stopped
//	servers.go  MCP servers on SDKs of others
//	clients.go  MCP clients on SDKs of others
//	dex.go      an identity provider that ignores the audience asked for
//	zitadel.go  an identity provider whose tokens are opaque
//	keycloak.go the identity provider that most companies run
//	oidcprovider.go
//	            an engine for identity providers, whose exchange is ours
//	login.go    the same engine, where people sign in for a client
//	realm.go    what keycloak.go and oidcprovider.go have in common: one person
//	            and one broker
//	token.go    how a test gets a subject token from them
//	openbao.go  a Vault of other hands
//	axe.go      rules for pages that everybody can use
//
// What always holds:
//
//   - Nothing is skipped: where a program is not in the cache, the test fails
//     and says which script puts it there. Which tests ask is decided by the
//     build tag real, or interop where that needs Java.
//   - A program gets an environment of its own and an empty home, and ends with
//     the test.
//   - A test that fails shows what its programs said.
//
// It imports nothing of ours, so that no mistake of ours is on both sides. It
// does not bend a counterpart into what we expect: but for the address that one of
// them listens on (servers.go), for the grant that one of them lacks
// (oidcprovider.go), and for documents on loopback and tokens that are an hour old
// (login.go), each is as it is shipped, and its oddities are what the
// tests are about.
package counterparts
