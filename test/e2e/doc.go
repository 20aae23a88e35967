// Package e2e holds tests of the real program over real Vault, most of them with the build
// tag real; `make real` runs them.
package e2e
