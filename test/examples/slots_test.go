//go:build integration

package examples_test

import (
	"fmt"
	"strings"
	"testing"

	"golock/test/testkit"
)

// Frames are rendered at the same time, each on devices that no other has at the time.
func TestDevices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ devices, weight, frames, atOnce int }{{3, 1, 9, 3}, {4, 2, 6, 2}} {
		s := sandbox(t, "devices", "")
		// The first $ATONCE renderers wait for each other, so that all devices are in use together.
		s.Script("bin/render", `#!/bin/sh
IFS=,
for d in $CUDA_VISIBLE_DEVICES; do mkdir "busy.$d" || echo "overlap on $d" >>log; done
echo "begin $1 $CUDA_VISIBLE_DEVICES" >>log
until [ "$(grep -c begin log)" -ge "$ATONCE" ]; do sleep 0.1; done
echo "end $1" >>log
for d in $CUDA_VISIBLE_DEVICES; do rmdir "busy.$d"; done
`)
		argv := []string{"./render-all"}
		for i := range c.frames {
			argv = append(argv, fmt.Sprint("frame", i))
		}
		succeeds(s.Exec(argv...).Setenv(fmt.Sprint("ATONCE=", c.atOnce), fmt.Sprint("DEVICES=", c.devices),
			fmt.Sprint("WEIGHT=", c.weight)).Begin())
		log := s.Read("log")
		if n := most(log); n != c.atOnce || strings.Contains(log, "overlap") {
			t.Errorf("%d frames at once, want %d, each on other devices:\n%s", n, c.atOnce, log)
		}
		frames, devices := map[string]int{}, map[string]bool{}
		for _, line := range lines(log) {
			if f := strings.Fields(line); f[0] == "begin" {
				frames[f[1]]++
				for d := range strings.SplitSeq(f[2], ",") {
					devices[d] = true
				}
			}
		}
		if strings.Count(log, "begin") != c.frames || len(frames) != c.frames {
			t.Errorf("frames rendered: %v", frames)
		}
		for d := range c.devices {
			delete(devices, fmt.Sprint(d))
		}
		if len(devices) > 0 {
			t.Errorf("devices %v do not exist, and were used:\n%s", devices, log)
		}
	}
}

// Readers meet inside, and a writer waits for them.
func TestReadersWriter(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "readers-writer", "")
	s.Script("use", `#!/bin/sh
echo "begin $1" >>log
until [ -e "go.$1" ]; do sleep 0.1; done
echo "end $1" >>log
`)
	begin := func(kind, who string) *testkit.Process { return s.Exec("./catalog", kind, "./use", who).Begin() }
	inside := func(who string) {
		t.Helper()
		s.Eventually(who+" is in", func() bool { return strings.Contains(s.Read("log"), "begin "+who+"\n") })
	}
	all := []*testkit.Process{begin("read", "r1"), begin("read", "r2")}
	inside("r1")
	inside("r2") // both at once: none has been told to go
	all = append(all, begin("write", "w"))
	s.AwaitWaiting("catalog", 1)
	s.Write("go.w", "") // it would be through at once if it were let in
	s.Write("go.r1", "")
	all[0].Wait()
	s.AwaitWaiting("catalog", 1) // r2 keeps the writer out
	s.Write("go.r2", "")
	for _, p := range all {
		succeeds(p)
	}
	if log, want := s.Read("log"), "end r2\nbegin w\nend w\n"; !strings.HasSuffix(log, want) {
		t.Errorf("the log is\n%s\nand should end with\n%s", log, want)
	}
	s.Exec("./catalog", "erase").Run().Expect(t, 64, "usage: ")
}
