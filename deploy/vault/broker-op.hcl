# Policy "broker-op": an epoch, the short-lived token that holds exchanged tokens.
# Without "update" an entry is written once. There is no "list".

path "cubbyhole/op/+"         { capabilities = ["create", "read", "delete"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
