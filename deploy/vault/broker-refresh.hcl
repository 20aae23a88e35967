# Policy "broker-refresh", for grants with `credential: {refresh_token: …}`: the
# broker replaces a stored refresh token that the provider has rotated. "patch" can
# neither make a secret nor remove one; every change keeps the versions before it.
#
# vault:kv/broker/refresh/<name>#... "read" stands here again because in Vault the
# closest path counts alone, over all policies.

path "kv/data/broker/refresh/+" { capabilities = ["read", "patch"] }
