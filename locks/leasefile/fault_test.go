package leasefile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shortTTL is that of processes which are killed.
const shortTTL = 400 * time.Millisecond

// A process that is killed before any step of the protocol holds up nobody for
// longer than its TTL.
func TestKilledAtEveryStep(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		for step := 1; ; step++ {
			err := process(t, order{URL: url, Do: "once", Step: step, TTL: shortTTL}).Run()
			ticket, joined := s.Join(background, request(t, "n"))
			if joined != nil {
				t.Fatalf("killed before step %d, Join: %v", step, joined)
			}
			began := time.Now()
			lease, waited := ticket.Wait(background)
			if waited != nil {
				t.Fatalf("killed before step %d, Wait: %v", step, waited)
			}
			if took := time.Since(began); took > shortTTL+2*time.Second {
				t.Errorf("killed before step %d, the next one waited for %v", step, took)
			}
			if err := release(lease); err != nil {
				t.Fatalf("killed before step %d, Release: %v", step, err)
			}
			if err == nil {
				if step < 15 {
					t.Fatalf("the protocol has %d steps only: are they told?", step)
				}
				break
			}
		}
		sweepAll(t, url)
	})
}

// The same for one that waits in a line.
func TestKilledAtEveryStepOfWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		for step := 1; ; step++ {
			first := take(t, s, "n")
			cmd := process(t, order{URL: url, Do: "once", Step: step, TTL: shortTTL})
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			// It has joined, or it will not come.
			var err error
			over := false
			eventually(t, "the process waits or has ended", func() bool {
				select {
				case err = <-ended:
					over = true
				default:
				}
				return over || len(list(t, s, "n")) == 2
			})
			behind := queue(t, s, "n")
			if err := release(first); err != nil {
				t.Fatal(err)
			}
			if !over {
				err = <-ended
			}
			if err := release(behind.granted()); err != nil {
				t.Fatal(err)
			}
			if err == nil {
				if step < 20 {
					t.Fatalf("the protocol has %d steps only: are they told?", step)
				}
				break
			}
		}
		sweepAll(t, url)
	})
}

// sweepAll demands that a sweep leaves nothing that anybody has left behind.
func sweepAll(t *testing.T, url string) {
	t.Helper()
	s := open(t, url)
	if _, err := s.Sweep(background, 0); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	dir := directory(t, url)
	for _, pattern := range []string{"/new.*", "/old.*", "/*/line/*", "/*/data/*"} {
		left, err := filepath.Glob(dir + pattern)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Twenty users, of whom many are killed at any moment, and two that sweep: never
// two at once, and nobody is held up for good.
func TestCrowd(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		if scheme, _, _ := strings.Cut(url, ":"); scheme == "mkdir" {
			url = scheme + "://" + t.TempDir() // whose listings are not those of memory
		}
		witness := t.TempDir() + "/witness"
		if err := os.WriteFile(witness, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		const length = 6 * time.Second
		end := time.Now().Add(length)
		done := make(chan int, 22)
		for i := range 22 {
			o := order{URL: url, Do: "use", Witness: witness, TTL: 1500 * time.Millisecond}
			if i < 2 {
				o.Do = "sweep"
			}
			go func() {
				killed := 0
				defer func() { done <- killed }()
				for left := length; left > 0; left = time.Until(end) {
					o.For = left
					cmd := process(t, o)
					err := cmd.Run()
					status, ok := cmd.ProcessState.Sys().(interface{ Signaled() bool })
					switch {
					case err == nil:
					case ok && status.Signaled():
						killed++
					default:
						t.Errorf("a process ended with %v", err)
						return
					}
				}
			}()
		}
		killed := 0
		for range 22 {
			killed += <-done
		}
		if killed == 0 {
			t.Error("nobody was killed")
		}
		t.Logf("%d were killed", killed)
		s := open(t, url)
		ticket, err := s.Join(background, request(t, "n"))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := ticket.Wait(background)
		if err != nil {
			t.Fatal(err)
		}
		if err := release(lease); err != nil {
			t.Fatal(err)
		}
		sweepAll(t, url)
	})
}
