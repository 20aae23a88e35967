package brokertest_test

import (
	"context"
	"fmt"

	"onbehalf.internal/broker/brokertest"
)

// A gateway's own test starts a whole broker, breaks what it wants to try, and
// looks at what its users would get. In a test, New(t, nil) does the same and
// ends with the test.
func Example() {
	ctx := context.Background()
	rig, err := brokertest.Start(ctx, brokertest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rig.Close()

	a, _ := rig.Do(ctx, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami", Key: "first"})
	fmt.Println(a.State, a.Retry, a.Text)

	a, _ = rig.Do(ctx, brokertest.Call{Actor: "user:8", Server: "records", Tool: "whoami"})
	fmt.Println(a.Status, a.Reason)

	rig.Records.Close() // the server is gone
	a, _ = rig.Do(ctx, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	fmt.Println(a.State, a.Cause, a.Retry)

	// Output:
	// succeeded never {"subject":"user:7","audience":["mcp-records"],"actor":"broker"}
	// 403 no_grant
	// not_sent connect_failed safe
}
