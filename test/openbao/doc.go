// Package openbao runs the cases of vault/vaulttest on OpenBao: what the broker
// needs of a Vault, at a server that other people keep. All of them hold; one
// needs a limit that Vault has by itself (internal/counterparts/openbao.go).
//
// The test is behind the build tag real.
package openbao
