//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// steps are the lines of shell in a pipeline of a CI system.
func steps(t *testing.T, file string) string {
	t.Helper()
	text := read(t, "ci", file)
	if strings.HasSuffix(file, ".sh") {
		return text
	}
	var shell []string
	for _, line := range lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if strings.HasPrefix(strings.TrimPrefix(line, "exec "), "golock ") || strings.HasPrefix(line, "make ") {
			shell = append(shell, line)
		}
	}
	if len(shell) != 2 {
		t.Fatalf("%s: the steps are %q", file, shell)
	}
	return strings.Join(shell, "\n")
}

// Pipelines of all systems run beside each other, their deployments one after the other.
func TestCIPipelines(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", redistest.StoreURL(t))
	s.Write("Makefile", "all: a.o b.o c.o\n")
	for _, c := range []string{"a.c", "b.c", "c.c"} {
		s.Write(c, "int f;\n")
	}
	s.Script("deploy.sh", "#!/bin/sh\necho begin >>log\nsleep 0.05\necho end $1 >>log\n")
	var all []*testkit.Process
	files := []string{"github-actions.yml", "gitlab-ci.yml", "Jenkinsfile", "step.sh"}
	for _, file := range files {
		all = append(all, s.Exec("sh", "-e", "-c", steps(t, file)).Begin())
	}
	for _, p := range all {
		succeeds(p)
	}
	if log := s.Read("log"); log != strings.Repeat("begin\nend production\n", len(files)) {
		t.Errorf("deployments overlap:\n%s", log)
	}
}

// Three pipelines have an environment each, over their jobs; the fourth waits until one is given
// back.
func TestCIEnvironments(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", redistest.StoreURL(t))
	pipeline := func(n int, action string) *testkit.Process {
		c := s.Exec(filepath.Join(examples, "ci", "environments.sh"), action)
		c.Dir = s.Path(fmt.Sprint(n))
		testkit.Must(t, os.MkdirAll(c.Dir, 0o755))
		return c.Begin()
	}
	for n := range 3 {
		if got := succeeds(pipeline(n, "take")); got != fmt.Sprintln(n) {
			t.Errorf("pipeline %d has environment %s", n, got)
		}
	}
	late := pipeline(3, "take")
	s.AwaitWaiting("environments", 1)
	succeeds(pipeline(1, "give"))
	if got := succeeds(late); got != "1\n" {
		t.Errorf("the fourth has environment %s, want 1", got)
	}
}

// One leads; when its golock is killed, or it is told to step down, the next in line does, and
// never two at once.
func TestLeader(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "leader", redistest.StoreURL(t))
	// Says that it leads, and in which term of office, until it is ended.
	s.Script("lead", `#!/bin/sh
mkdir office || echo "two leaders" >>log
trap 'rmdir office; exit 143' TERM
echo "begin $1 $GOLOCK_FENCE" >>log
while [ -e log ]; do sleep 0.1; done
`)
	stand := func(host string, place int) *testkit.Process {
		t.Helper()
		p := s.Exec("./leader", "./lead", host).Begin()
		s.Eventually(host+" stands in line", func() bool { return len(s.List("leader")) == place })
		return p
	}
	var fence int64
	leads := func(host string) {
		t.Helper()
		s.Eventually(host+" leads", func() bool { return strings.Contains(s.Read("log"), "begin "+host+" ") })
		all := lines(s.Read("log"))
		var term int64
		if _, err := fmt.Sscanf(all[len(all)-1], "begin "+host+" %d", &term); err != nil || term <= fence {
			t.Errorf("the log is %q: %v, the last term was %d", all, err, fence)
		}
		fence = term
	}
	a, b, c := stand("a", 1), stand("b", 2), stand("c", 3)
	leads("a")
	a.Signal(syscall.SIGKILL) // golock itself: the watchdog kills the command, which leaves its office
	s.Eventually("a has gone", func() bool {
		return os.Remove(s.Path("office")) == nil || strings.Contains(s.Read("log"), "begin b ")
	})
	leads("b")
	s.Golock("break", "--name", "leader").Run().Expect(t, 0)
	b.Expects(79)
	leads("c")
	testkit.Must(t, os.Remove(s.Path("log")))
	c.Expects(0)
}
