# Policy "broker-transit", for profiles with `key: vault-transit:transit/KEY`: the
# broker has Vault sign with this one key, and can neither read it nor use it for
# anything else. setup.sh puts the name in.

path "transit/sign/KEY" { capabilities = ["update"] }
