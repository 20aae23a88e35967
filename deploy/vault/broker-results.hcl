# Policy "broker-results", for `keys: {results: "vault-transit:transit/KEY"}`: the
# broker has Vault make data keys with this one key, and unwrap them again. It can
# neither read the key nor change it. setup.sh puts the name in.

path "transit/datakey/plaintext/KEY" { capabilities = ["update"] }
path "transit/decrypt/KEY"           { capabilities = ["update"] }
