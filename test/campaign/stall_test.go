//go:build integration

package campaign_test

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Stalls: a thread on each processor sleeps for a short time, again and again, and notes when it was
// woken late.

const (
	beat = 5 * time.Millisecond
	late = 25 * time.Millisecond // less than what a guard has for its kill: 1 % of 3 s
)

var stalls struct {
	mu   sync.Mutex
	list []fault
}

func watchStalls() {
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var here unix.CPUSet
			here.Set(cpu)
			if unix.SchedSetaffinity(0, &here) != nil {
				return // not one of ours
			}
			pause := unix.NsecToTimespec(int64(beat))
			for last := monotonic(); ; {
				_ = unix.Nanosleep(&pause, nil)
				now := monotonic()
				if time.Duration(now-last) > beat+late {
					stalls.mu.Lock()
					f := fault{kind: heldUp, token: -1, host: -1, from: last, to: now}
					stalls.list = append(stalls.list, f)
					stalls.mu.Unlock()
				}
				last = now
			}
		}()
	}
}

func stallsSince(from moment) (list []fault) {
	stalls.mu.Lock()
	defer stalls.mu.Unlock()
	for _, f := range stalls.list {
		if f.to > from {
			list = append(list, f)
		}
	}
	return list
}
