package locks_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golock/locks"
	"golock/locks/local"
)

// A run joins the queue of a name, waits for its turn, and releases the slot that it was given.
func Example() {
	dir, err := os.MkdirTemp("", "golock-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store := local.New(dir)
	defer store.Close()

	request := func() locks.Request {
		ref, err := locks.NewRef("backup")
		if err != nil {
			panic(err)
		}
		return locks.Request{Ref: ref, Name: "backup", Claim: locks.Claim{Weight: 1, Max: 1}}
	}
	hold := func(who string) locks.Lease {
		admission, err := store.Join(ctx, request())
		if err != nil {
			panic(err)
		}
		lease, err := admission.Wait(ctx)
		if err != nil {
			panic(err)
		}
		fmt.Println(who, "holds slot", lease.Grant().Slots)
		return lease
	}

	first := hold("the first run")
	impatient := request()
	impatient.NoWait = true
	_, err = store.Join(ctx, impatient)
	fmt.Println("the lock is busy:", errors.As(err, new(*locks.BusyError)))

	if err := first.Release(ctx); err != nil {
		panic(err)
	}
	second := hold("the second run")
	defer second.Release(ctx)
	fmt.Println("the fence has grown:", second.Grant().Fence > first.Grant().Fence)
	// Output:
	// the first run holds slot [0]
	// the lock is busy: true
	// the second run holds slot [0]
	// the fence has grown: true
}

// The admission rule: all weights together must not exceed the smallest max of all.
func ExampleAdmits() {
	holders := []locks.Claim{{Weight: 1, Max: 3}, {Weight: 1, Max: 2}}
	fmt.Println(locks.Admits(holders[:1], locks.Claim{Weight: 1, Max: 2}))
	fmt.Println(locks.Admits(holders, locks.Claim{Weight: 1, Max: 3})) // who promised 2 still runs
	// Output:
	// true
	// false
}
