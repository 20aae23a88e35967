package identity_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"onbehalf.internal/broker/identity"
)

// A test that needs a Caller and an Actor gets them as the program does: from a
// directory, by a bearer that the test knows and an actor that the caller may
// assert.
func ExampleDirectory() {
	d, err := identity.NewDirectory([]identity.CallerConfig{{
		ID:           "gateway",
		Roles:        []identity.Role{identity.Operate},
		BearerSHA256: [][32]byte{sha256.Sum256([]byte("a-bearer-of-the-test"))},
		Asserted:     []string{"service:nightly"},
	}}, time.Now)
	if err != nil {
		panic(err)
	}
	h := http.Header{"Authorization": {"Bearer a-bearer-of-the-test"}, "Broker-Actor": {"service:nightly"}}

	caller, _ := d.Caller(h)
	actor, _ := d.Actor(caller, h)

	fmt.Println(caller.ID(), actor)
	// Output: gateway service:nightly
}
