# Policy "broker": the broker's own login. It mints epochs through one role and
# reads the referenced credentials; it cannot read what an epoch holds, list
# anything, write anything or make any other token.
#
# The segments are "+", which stands for exactly one, and never "*".

path "auth/token/create/broker-op" { capabilities = ["update"] }

path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/renew-self"  { capabilities = ["update"] }
path "auth/token/revoke-self" { capabilities = ["update"] }

# `broker doctor` holds what this login may do against what it needs. Nobody learns by
# it what they could not try out.
path "sys/capabilities-self" { capabilities = ["update"] }

# vault:kv/broker/<name>#... and vault:kv/broker/<group>/<name>#...
path "kv/data/broker/+"   { capabilities = ["read"] }
path "kv/data/broker/+/+" { capabilities = ["read"] }
