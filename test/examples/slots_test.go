//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/test/testkit"
)

// Frames are rendered three at a time, each on a device that no other has at the time.
func TestDevices(t *testing.T) {
	t.Parallel()
	testkit.Need(t, "mkdir")
	for _, tt := range []struct {
		name          string
		devices       int
		weight        int
		frames        int
		atOnce        int
		wantedDevices []string
	}{
		{"one each", 3, 1, 9, 3, []string{"0", "1", "2"}},
		{"two each", 4, 2, 6, 2, []string{"0", "1", "2", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, bin, work := copyExample(t, "devices"), t.TempDir(), t.TempDir()
			// The first $ATONCE renderers wait for each other, so that all devices are in use together.
			write(t, filepath.Join(bin, "render"), 0o755, `#!/bin/sh
cd "$WORK" || exit 1
IFS=,
for d in $CUDA_VISIBLE_DEVICES; do mkdir "busy.$d" || echo "overlap on $d" >>log; done
echo "begin $1 $CUDA_VISIBLE_DEVICES" >>log
until [ "$(grep -c begin log)" -ge "$ATONCE" ]; do sleep 0.01; done
echo "end $1" >>log
for d in $CUDA_VISIBLE_DEVICES; do rmdir "busy.$d"; done
`)
			argv := []string{"./render-all"}
			for i := range tt.frames {
				argv = append(argv, fmt.Sprintf("frame%d", i))
			}
			c := newCommand(t, t.TempDir(), dir, argv...)
			c.Env = append(c.Env, "PATH="+bin+":"+os.Getenv("PATH"), "WORK="+work, fmt.Sprint("ATONCE=", tt.atOnce),
				fmt.Sprint("DEVICES=", tt.devices), fmt.Sprint("WEIGHT=", tt.weight))
			c.start(t)
			if code := c.code(t); code != 0 || c.said() != "" {
				t.Fatalf("code %d, stderr: %s", code, &c.err)
			}
			log := read(t, filepath.Join(work, "log"))
			if strings.Contains(log, "overlap") {
				t.Errorf("a device was used twice at once:\n%s", log)
			}
			if n := most(log); n != tt.atOnce {
				t.Errorf("%d frames at once, want %d:\n%s", n, tt.atOnce, log)
			}
			used := map[string]int{}
			for _, line := range lines(log) {
				if f := strings.Fields(line); f[0] == "begin" {
					used[f[1]]++
					for d := range strings.SplitSeq(f[2], ",") {
						used["device "+d]++
					}
				}
			}
			for _, d := range tt.wantedDevices {
				if used["device "+d] == 0 {
					t.Errorf("device %s was never used:\n%s", d, log)
				}
				delete(used, "device "+d)
			}
			for i := range tt.frames {
				frame := fmt.Sprintf("frame%d", i)
				if used[frame] != 1 {
					t.Errorf("%s was rendered %d times", frame, used[frame])
				}
				delete(used, frame)
			}
			if len(used) > 0 {
				t.Errorf("devices that do not exist were used: %v", used)
			}
		})
	}
}

// Readers meet inside, a writer waits for them and is alone, and a reader that comes after the writer waits for it.
func TestReadersWriter(t *testing.T) {
	t.Parallel()
	dir, work, store := copyExample(t, "readers-writer"), t.TempDir(), t.TempDir()
	write(t, filepath.Join(work, "use"), 0o755, `#!/bin/sh
# use WHO: says that it is in, and goes out when told to
cd "${0%/*}" || exit 1
echo "begin $1" >>log
until [ -e "go.$1" ]; do sleep 0.01; done
echo "end $1" >>log
`)
	log := filepath.Join(work, "log")
	begin := func(kind, who string) *command {
		return newCommand(t, store, dir, "./catalog", kind, filepath.Join(work, "use"), who).start(t)
	}
	inside := func(who string) {
		t.Helper()
		testkit.Eventually(t, who+" is in", func() bool { return strings.Contains(read(t, log), "begin "+who+"\n") })
	}
	waiting := func(n int) {
		t.Helper()
		testkit.Eventually(t, "the queue's length", func() bool {
			return strings.Count(mustRun(t, store, "", "golock", "ls", "--json", "catalog"), `"waiting"`) == n
		})
	}
	leave := func(who string) { write(t, filepath.Join(work, "go."+who), 0o644, "") }

	all := []*command{begin("read", "r1"), begin("read", "r2")}
	inside("r1")
	inside("r2") // both at once: none has been told to go
	all = append(all, begin("write", "w"))
	waiting(1)
	all = append(all, begin("read", "r3"))
	waiting(2)
	leave("r3") // r3 would be through at once if it were let in
	leave("r1")
	all[0].code(t)
	waiting(2) // r2 keeps the writer out, and the writer r3
	if s := read(t, log); strings.Contains(s, "w") || strings.Contains(s, "r3") {
		t.Errorf("someone was let in too early:\n%s", s)
	}
	leave("r2")
	inside("w")
	waiting(1)
	leave("w")
	for _, c := range all {
		if code := c.code(t); code != 0 || c.said() != "" {
			t.Errorf("%q: code %d, stderr: %s", c.Args, code, &c.err)
		}
	}
	if s, want := read(t, log), "end r2\nbegin w\nend w\nbegin r3\nend r3\n"; !strings.HasSuffix(s, want) {
		t.Errorf("the log is\n%s\nand should end with\n%s", s, want)
	}
	bad := newCommand(t, store, dir, "./catalog", "erase").start(t)
	if code := bad.code(t); code != 64 || !strings.HasPrefix(bad.err.String(), "usage: ") {
		t.Errorf("catalog erase: code %d, stderr %q", code, &bad.err)
	}
}
