// Command tickets holds or waits for many slots in one process, to load a store
// with more than a machine can run processes for. It is a part of the
// benchmarks.
//
//	tickets hold URL TTL PREFIX N     takes PREFIX1 to PREFIXN, a few at a time
//	tickets visit URL TTL PREFIX N    takes each of them and gives it back
//	tickets wait URL TTL NAME N       queues N on NAME; who is granted gives back at once
//	tickets turn URL TTL PREFIX NAMES LOOPS SECONDS
//	                                  takes and gives back for so long, each loop one of the names
//
// What has been done is told on standard output, a line of JSON at a time. hold
// then takes "renew K" on standard input, as often as it is said, and all of
// them go on until that ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/open"
)

// told is a line of the output, times in ms.
type told struct {
	Took    []float64 `json:"took,omitempty"`    // of each step
	Granted []float64 `json:"granted,omitempty"` // on CLOCK_MONOTONIC
	Lasted  float64   `json:"lasted"`            // all together
}

// abreast is how many steps are under way at a time.
const abreast = 8

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tickets:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 5 {
		return errors.New("want hold, visit, wait or turn, URL, TTL, NAME and a number")
	}
	ttl, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	var numbers []int
	for _, arg := range args[4:] {
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		numbers = append(numbers, n)
	}
	s, err := open.Store(args[1])
	if err != nil {
		return err
	}
	defer s.Close()
	p := place{s, ttl, args[3]}
	switch {
	case args[0] == "hold" && len(numbers) == 1:
		return p.hold(numbers[0])
	case args[0] == "visit" && len(numbers) == 1:
		return p.visit(numbers[0])
	case args[0] == "wait" && len(numbers) == 1:
		return p.wait(numbers[0])
	case args[0] == "turn" && len(numbers) == 3:
		return p.turn(numbers[0], numbers[1], time.Duration(numbers[2])*time.Second)
	}
	return errors.New("want hold, visit, wait or turn")
}

// place is where slots are taken.
type place struct {
	store locks.Store
	ttl   time.Duration
	name  string
}

func (p place) join(name string) (locks.Ticket, error) {
	ref, err := locks.NewRef(name)
	if err != nil {
		return nil, err
	}
	return p.store.Join(context.Background(), locks.Request{Ref: ref, Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, TTL: p.ttl, Command: []string{"tickets"}})
}

func (p place) take(name string) (locks.Lease, error) {
	t, err := p.join(name)
	if err != nil {
		return nil, err
	}
	return t.Wait(context.Background())
}

// each runs step for 0 to n-1, some at a time, and gives how long each took.
func each(n int, step func(i int) error) (told, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	t := told{Took: make([]float64, n)}
	begun, next := time.Now(), 0
	for range abreast {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i, stop := next, failed != nil || next >= n
				next++
				mu.Unlock()
				if stop {
					return
				}
				before := time.Now()
				err := step(i)
				t.Took[i] = since(before)
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	t.Lasted = since(begun)
	return t, failed
}

func since(begun time.Time) float64 { return float64(time.Since(begun)) / 1e6 }

// monotonic is the clock of the harness.
func monotonic() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return float64(t.Nano()) / 1e6
}

func tell(t told, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

func (p place) hold(n int) error {
	leases := make([]locks.Lease, n)
	err := tell(each(n, func(i int) (err error) {
		leases[i], err = p.take(p.name + strconv.Itoa(i+1))
		return err
	}))
	if err != nil {
		return err
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		text, ok := strings.CutPrefix(orders.Text(), "renew ")
		k, err := strconv.Atoi(text)
		if !ok || err != nil || k > n {
			return fmt.Errorf("order %q", orders.Text())
		}
		err = tell(each(k, func(i int) error {
			l, ok := leases[i].(locks.Leased)
			if !ok {
				return errors.New("the store has no leases")
			}
			_, err := l.Renew(context.Background())
			return err
		}))
		if err != nil {
			return err
		}
	}
	return tell(each(n, func(i int) error { return leases[i].Release(context.Background()) }))
}

func (p place) visit(n int) error {
	return tell(each(n, func(i int) error { return p.takeAndGive(p.name + strconv.Itoa(i+1)) }))
}

func (p place) takeAndGive(name string) error {
	l, err := p.take(name)
	if err != nil {
		return err
	}
	return l.Release(context.Background())
}

func (p place) wait(n int) error {
	tickets := make([]locks.Ticket, n)
	t, err := each(n, func(i int) (err error) {
		tickets[i], err = p.join(p.name)
		return err
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var granted []float64
	for _, ticket := range tickets {
		wg.Add(1)
		go func() {
			defer wg.Done()
			l, err := ticket.Wait(context.Background())
			at := monotonic()
			if err == nil {
				err = l.Release(context.Background())
			}
			mu.Lock()
			defer mu.Unlock()
			if granted = append(granted, at); err != nil {
				failed = err
			}
		}()
	}
	if err := tell(t, nil); err != nil {
		return err
	}
	begun := time.Now()
	wg.Wait()
	return tell(told{Granted: granted, Lasted: since(begun)}, failed)
}

func (p place) turn(names, loops int, long time.Duration) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	t := told{}
	begun := time.Now()
	for loop := range loops {
		wg.Add(1)
		go func() {
			defer wg.Done()
			name := p.name + strconv.Itoa(loop%names+1)
			var took []float64
			var err error
			for err == nil && time.Since(begun) < long {
				before := time.Now()
				err = p.takeAndGive(name)
				took = append(took, since(before))
			}
			mu.Lock()
			defer mu.Unlock()
			if t.Took = append(t.Took, took...); err != nil {
				failed = err
			}
		}()
	}
	wg.Wait()
	t.Lasted = since(begun)
	return tell(t, failed)
}
