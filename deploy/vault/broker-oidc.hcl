# Policy "broker-oidc", for grants with `credential: {vault_oidc: {role: ROLE}}`:
# Vault issues a token by this one role. setup.sh puts the name in; for more roles
# add a line for each, and no "+": it would stand for every role that there is.

path "identity/oidc/token/ROLE" { capabilities = ["read"] }
