// Package deployvault carries the policies and the token role that an operator
// gives to Vault, so that tests set up a Vault with these very files.
package deployvault

import "embed"

// Files holds broker.hcl, broker-op.hcl, broker-op.json and broker-results.hcl.
//
//go:embed broker.hcl broker-op.hcl broker-op.json broker-results.hcl
var Files embed.FS
