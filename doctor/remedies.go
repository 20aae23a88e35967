package doctor

import "onbehalf.internal/broker/fault"

// remedies are what a person does about a reason.
var remedies = map[fault.Reason]string{
	fault.CallerUnknown:    "The broker does not know this bearer: its SHA-256 has to be under callers.<id>.bearer_sha256.",
	fault.ActorMissing:     "Say for whom: --actor, or --assertion-file, as the gateway does.",
	fault.ActorInvalid:     "This is no actor; one is user:… or service:…, said in one way.",
	fault.AssertionInvalid: "The assertion is not believed: look at issuer, audience, subjects and key under callers.<id>.actors.signed, and at its exp.",
	fault.ActorNotAllowed:  "This caller may not speak for this actor, or not in this way: look at callers.<id>.actors.",
	fault.RoleMissing:      "This caller lacks the role operate.",
	fault.HostNotAllowed:   "Use the address that the broker listens on, as in listen.api.",
	fault.RateLimited:      "This caller asks too much at the moment; try again.",
	fault.ServerBusy:       "It is being asked already; try again in a moment.",
	fault.Suspended:        "An admin has stopped it: `broker suspensions` says who and why, and how to lift it.",
	fault.Draining:         "The broker is stopping.",

	fault.VaultNotReady:     "It has no live login or epoch in Vault: the log says why; deploy/vault/setup.sh sets up what it needs.",
	fault.VaultUnreachable:  "Vault does not answer: look at vault.address and the way there.",
	fault.VaultSealed:       "Vault is sealed: vault operator unseal.",
	fault.VaultDenied:       "Vault says no: compare its policies with deploy/vault.",
	fault.CredentialMissing: "It is not in Vault, or under another field: vault kv put.",

	fault.StoreFailed:      "Its disk has failed: free space, then restart it.",
	fault.StoreUnavailable: "It cannot read its store: the log says why.",

	fault.HostRefused:      "The address is not one that may be dialled: name its network in allow_cidrs of the declaration.",
	fault.TLSFailed:        "Its certificate is not trusted, or for another name: look at ca of the declaration.",
	fault.ProviderRedirect: "It answers with a redirect, which is not followed: name the address itself in token_endpoint.",
	fault.KeysUnavailable:  "Its keys cannot be had: look at response.jwks of the profile.",
}

// Remedy is what a person does about a reason.
func Remedy(r fault.Reason) string {
	if text, known := remedies[r]; known {
		return text
	}
	return "docs/outcomes.md says what it means."
}
