// Package contract holds the broker to the contract of an MCP client with delegated
// authentication, by the names that its checks have there: C1 to C24 for every kind
// of connection, and beside them what an import, a contact, a run and an approval are.
//
// A whole broker stands before a small scripted server, and is asked through its
// HTTP API alone. Nothing varies from one [profile] to the next but the server, its
// session, its data class and its approval. Where this broker does otherwise than
// the contract says, the check asserts what it does, and a line says why.
package contract
