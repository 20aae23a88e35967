// Package deployvault carries the policies and the token role that an operator
// gives to Vault, so that tests set up a Vault with these very files.
package deployvault

import "embed"

// Files holds broker.hcl, broker-op.hcl and broker-op.json.
//
//go:embed broker.hcl broker-op.hcl broker-op.json
var Files embed.FS
