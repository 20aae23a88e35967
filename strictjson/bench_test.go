package strictjson_test

import (
	"testing"

	"onbehalf.internal/broker/strictjson"
)

// BenchmarkMembers reads what Vault answers to the read of a credential.
func BenchmarkMembers(b *testing.B) {
	doc := []byte(`{"request_id":"5f6e9f3e-6a1a-0a55-3d0b-1f5a2b8b7c11","lease_id":"","renewable":false,"lease_duration":0,"data":{"data":{"token":"` +
		`eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL2lkZW50aXR5LmV4YW1wbGUub3JnIiwic3ViIjoidXNlcjo3IiwiYXVkIjoiYnJva2VyIn0.c2lnbmF0dXJl"},` +
		`"metadata":{"created_time":"2026-11-30T12:00:00.000000Z","custom_metadata":null,"deletion_time":"","destroyed":false,"version":1}},` +
		`"wrap_info":null,"warnings":null,"auth":null,"mount_type":"kv"}` + "\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := strictjson.Members(doc); err != nil {
			b.Fatal(err)
		}
	}
}
