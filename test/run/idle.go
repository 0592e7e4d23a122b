package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// quiet is the share of the machine's processors that must be idle, for as long as idleFor, before one
// more package is tested.
const (
	quiet   = 0.35
	idleFor = 5 * time.Second
)

// oneMore is held by the worker that looks. Workers that wait begin one after the other, and each of them
// sees what the one before it has begun.
var oneMore sync.Mutex

// awaitIdle returns when the processors are idle enough, when there is no more to do, or when the run is
// interrupted.
func awaitIdle(ctx context.Context, isMore func() bool) {
	oneMore.Lock()
	defer oneMore.Unlock()
	idle, all := processorTimes()
	for isMore() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(idleFor):
		}
		nextIdle, nextAll := processorTimes()
		if nextIdle-idle > quiet*(nextAll-all) {
			return
		}
		idle, all = nextIdle, nextAll
	}
}

// processorTimes are how long all processors have been idle, and how long there have been any, both in
// the kernel's unit (proc_stat(5)). Waiting for a disk is no idleness: one more would wait, too.
func processorTimes() (idle, all float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var times [8]float64 // user nice system idle iowait irq softirq steal
	_, _ = fmt.Sscanf(string(line), "cpu %g %g %g %g %g %g %g %g", &times[0], &times[1], &times[2], &times[3], &times[4], &times[5], &times[6], &times[7])
	for _, t := range times {
		all += t
	}
	return times[3], all
}
