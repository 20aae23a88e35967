#!/bin/sh
# Sets up a Vault for the broker: the KV engine at kv/ if nothing is there, the
# policies "broker" and "broker-op", and the token role "broker-op".
#
#   VAULT_ADDR=https://vault.example.org:8200 VAULT_TOKEN=... sh setup.sh [-a FILE] [-r] [-o ROLE] [-t KEY] [-s KEY]
#
# With VAULT_NAMESPACE all of it is put into that namespace, which has to be there.
#
# With -a it also sets up AppRole "broker", prints its role_id, and writes a new
# secret_id into FILE (mode 0600) unless FILE is there already. What the role may do
# besides the policy "broker" is told by the other flags:
#
#   -r       policy "broker-refresh": replace rotated refresh tokens below kv/broker/refresh/
#   -o ROLE  policy "broker-oidc": tokens by the OIDC role ROLE, which is made with the key "broker" (ES256)
#   -t KEY   policy "broker-transit": signatures by the key KEY, which is made (ECDSA P-256) in the engine at transit/
#   -s KEY   policy "broker-results": data keys for stored results by the key KEY, which is made (AES-256-GCM) at the same place
#
# A role or a key that is there already is left as it is. Running the script again
# with the same flags changes nothing else. It needs curl; CURL_CA_BUNDLE names another CA.
set -eu
here=$(dirname "$0")

fail() { echo "setup.sh: $*" >&2; exit 1; }

secret_id_file= refresh= oidc_role= transit_key= results_key=
while getopts a:ro:t:s: flag; do
	case $flag in
	a) secret_id_file=$OPTARG ;;
	r) refresh=yes ;;
	o) oidc_role=$OPTARG ;;
	t) transit_key=$OPTARG ;;
	s) results_key=$OPTARG ;;
	*) fail "usage: setup.sh [-a FILE] [-r] [-o ROLE] [-t KEY] [-s KEY]" ;;
	esac
done
for name in "$oidc_role" "$transit_key" "$results_key"; do
	case $name in
	*[!A-Za-z0-9_-]* | -*) fail "\"$name\" is no name: letters, digits, _ and -" ;;
	esac
done
[ -z "$results_key" ] || [ "$results_key" != "$transit_key" ] || fail "-t and -s need two keys: one signs, the other encrypts"
[ -n "${VAULT_ADDR:-}" ] || fail "VAULT_ADDR is not set"
[ -n "${VAULT_TOKEN:-}" ] || fail "VAULT_TOKEN is not set"
command -v curl >/dev/null || fail "curl is not installed"
VAULT_ADDR=${VAULT_ADDR%/}

# call METHOD PATH [BODY] leaves the answer in $status and $body. The token goes in
# by standard input: arguments can be seen in the list of processes.
call() {
	answer=$(printf 'header = "X-Vault-Token: %s"\nheader = "X-Vault-Namespace: %s"\n' "$VAULT_TOKEN" "$namespace" |
		curl -q -sS -K - -X "$1" ${3:+--data-binary} ${3:+"$3"} --max-time 30 -w '\n%{http_code}' "$VAULT_ADDR/v1/$2") ||
		fail "$VAULT_ADDR does not answer"
	status=$(printf '%s' "$answer" | tail -n 1)
	body=$(printf '%s' "$answer" | sed '$d')
}

# must WHAT METHOD PATH [BODY] is a call that has to succeed.
must() {
	what=$1
	shift
	call "$@"
	case $status in
	200 | 204) ;;
	403) fail "$what: Vault answered 403: VAULT_TOKEN may not do this" ;;
	*) fail "$what: Vault answered $status" ;;
	esac
}

# text FILE [EDIT] is the file, edited by sed, as a JSON string.
text() {
	sed "${2:-}" "$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | awk '{ printf "%s\\n", $0 } BEGIN { printf "\"" } END { printf "\"" }'
}

# field NAME is a field of $body that holds an id.
field() { printf '%s' "$body" | sed -n 's/.*"'"$1"'" *: *"\([^"]*\)".*/\1/p'; }

namespace= # the health is the whole Vault's
call GET sys/health
case $status in
200) ;;
503) fail "Vault is sealed" ;;
429 | 472 | 473) fail "this is a standby: use the address of the active node" ;;
*) fail "$VAULT_ADDR is no Vault: it answered $status" ;;
esac
namespace=${VAULT_NAMESPACE:-}
[ -z "$namespace" ] || call GET auth/token/lookup-self
[ "$status" != 404 ] || fail "there is no namespace \"$namespace\""

call GET sys/mounts/kv
[ "$status" = 200 ] || must "mounting kv/" POST sys/mounts/kv '{"type":"kv","options":{"version":"2"}}'

for name in broker broker-op; do
	must "writing policy $name" PUT "sys/policies/acl/$name" "{\"policy\":$(text "$here/$name.hcl")}"
done
must "writing token role broker-op" POST auth/token/roles/broker-op "$(cat "$here/broker-op.json")"
echo "policies broker and broker-op, token role broker-op: set"

# grant NAME [EDIT] writes one more policy for the broker's login.
policies=broker
grant() {
	must "writing policy $1" PUT "sys/policies/acl/$1" "{\"policy\":$(text "$here/$1.hcl" "${2:-}")}"
	policies=$policies,$1
	echo "policy $1: set"
}

# unless PATH BODY writes BODY to PATH if nothing is there.
unless() {
	call GET "$1"
	[ "$status" = 200 ] || must "writing $1" POST "$1" "$2"
}

[ -z "$refresh" ] || grant broker-refresh
if [ -n "$oidc_role" ]; then
	unless identity/oidc/key/broker '{"algorithm":"ES256","allowed_client_ids":"*","rotation_period":"24h","verification_ttl":"24h"}'
	unless "identity/oidc/role/$oidc_role" '{"key":"broker","ttl":"5m"}'
	grant broker-oidc "s/ROLE\"/$oidc_role\"/"
fi
if [ -n "$transit_key" ]; then
	unless sys/mounts/transit '{"type":"transit"}'
	unless "transit/keys/$transit_key" '{"type":"ecdsa-p256"}'
	grant broker-transit "s/KEY\"/$transit_key\"/"
fi
if [ -n "$results_key" ]; then
	unless sys/mounts/transit '{"type":"transit"}'
	unless "transit/keys/$results_key" '{"type":"aes256-gcm96"}'
	grant broker-results "s/KEY\"/$results_key\"/"
fi

[ -n "$secret_id_file" ] || exit 0

call GET sys/auth/approle
[ "$status" = 200 ] || must "enabling approle" POST sys/auth/approle '{"type":"approle"}'
must "writing AppRole broker" POST auth/approle/role/broker \
	"{\"token_policies\":\"$policies\",\"token_no_default_policy\":true,\"token_ttl\":\"1h\",\"token_max_ttl\":\"24h\"}"
must "reading role_id" GET auth/approle/role/broker/role-id
echo "role_id: $(field role_id)"

if [ -s "$secret_id_file" ]; then
	echo "secret_id: kept, $secret_id_file is there"
	exit 0
fi
umask 077
must "making a secret_id" POST auth/approle/role/broker/secret-id '{}'
id=$(field secret_id)
[ -n "$id" ] || fail "making a secret_id: the answer has none"
printf '%s' "$id" >"$secret_id_file.new" && chmod 600 "$secret_id_file.new" && mv "$secret_id_file.new" "$secret_id_file" ||
	fail "cannot write $secret_id_file"
echo "secret_id: written to $secret_id_file"
