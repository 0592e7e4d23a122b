//go:build integration

package sqltest_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// leaving has TestLeave start servers.
const leaving = "SQLTEST_LEAVING"

// However a test binary ends, even with its servers paused, neither processes
// nor files nor shared memory remain.
func TestNothingRemains(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "leave-") // the servers' users must get through
	testkit.Must(t, err)
	defer os.RemoveAll(dir)
	testkit.Must(t, os.Chmod(dir, 0o711))
	cmd := exec.Command(os.Args[0], "-test.run=^TestLeave$")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, leaving+"=1")
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	r := bufio.NewReader(out)
	line, _ := r.ReadString('\n')
	segment, ready := strings.CutPrefix(strings.TrimSpace(line), "ready: ")
	if !ready {
		rest, _ := io.ReadAll(r)
		t.Fatalf("it is not ready: %s%s", line, rest)
	}
	if !exists(t, segment) {
		t.Errorf("no segment %s", segment)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	testkit.Eventually(t, "all files are gone", func() bool {
		list, err := os.ReadDir(dir)
		return err == nil && len(list) == 0
	})
	testkit.Eventually(t, "all processes are gone", func() bool { return !works(dir) })
	if exists(t, segment) {
		t.Errorf("segment %s is left", segment)
	}
}

// works reports whether a process has its working directory below dir.
func works(dir string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, dir+"/") {
			return true
		}
	}
	return false
}

// exists reports whether there is a segment of shared memory with a key.
func exists(t testing.TB, key string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sysvipc/shm")
	testkit.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == key {
			return true
		}
	}
	return false
}

// TestLeave is the process that TestNothingRemains ends, and nothing by itself.
func TestLeave(t *testing.T) {
	if os.Getenv(leaving) == "" {
		return
	}
	s := sqltest.StartPostgres(t)
	text, err := os.ReadFile(filepath.Join(s.Dir, "data", "postmaster.pid"))
	testkit.Must(t, err)
	key := strings.Fields(strings.Split(string(text), "\n")[6])[0]
	sqltest.StartBouncer(t, s, sqltest.Session)
	sqltest.StartMaria(t).Pause()
	s.Pause()
	os.Stdout.WriteString("ready: " + key + "\n")
	select {} // until it is killed
}
