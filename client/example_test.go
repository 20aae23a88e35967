package client_test

import (
	"context"
	"errors"
	"fmt"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/client"
	"onbehalf.internal/broker/fault"
)

// A gateway calls a tool for a person. Where there is no result, retry alone decides what
// comes next.
func Example() {
	ctx := context.Background()
	rig, err := brokertest.Start(ctx, brokertest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rig.Close()

	c, err := client.New(client.Config{
		Address: rig.URL, // in production "http://127.0.0.1:8471", or "unix:/run/broker/api.sock"
		Bearer:  func(context.Context) (string, error) { return rig.Bearer, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := c.Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Text)

	_, err = c.Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "drop", Arguments: map[string]string{"job": "order-1"}})
	e, _ := errors.AsType[*client.Error](err)
	switch {
	case e.Open:
		fmt.Println("ask by", e.Key)
	case e.Operation == nil:
		fmt.Println("nothing was begun:", e.Kind(), e.Reason)
	case e.Operation.Retry == fault.RetryLookFirst:
		fmt.Println("it may have run: look at the server, do not repeat it")
	}

	_, err = c.Run(ctx, client.Call{Actor: "user:8", Server: "records", Tool: "whoami"})
	fmt.Println(err)

	// Output:
	// {"subject":"user:7","audience":["mcp-records"],"actor":"broker"}
	// it may have run: look at the server, do not repeat it
	// broker: no_grant: `caller "gateway", actor "user:8", server "records", tool "whoami"`
}

// A step that has to survive a crash of its own keeps its key beside its work. Run with the
// same key again is the same call: it runs once.
func ExampleClient_Run_resumed() {
	ctx := context.Background()
	rig, err := brokertest.Start(ctx, brokertest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rig.Close()
	c, err := client.New(client.Config{Address: rig.URL, Bearer: func(context.Context) (string, error) { return rig.Bearer, nil }})
	if err != nil {
		fmt.Println(err)
		return
	}
	step := client.Call{Actor: "user:7", Server: "records", Tool: "whoami", Key: "order-1/step-3"}
	for range 2 { // the second time after the crash
		op, err := c.Run(ctx, step)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(op.State, op.Attempt, rig.Records.Calls("whoami"))
	}

	// Output:
	// succeeded 1 1
	// succeeded 1 1
}
