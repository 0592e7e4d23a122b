//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// onRedis returns a command that takes its locks from a server: the variable that the examples leave to the user.
func onRedis(t *testing.T) (start func(dir string, argv ...string) *command) {
	t.Helper()
	url := redistest.StoreURL(t)
	return func(dir string, argv ...string) *command {
		t.Helper()
		c := newCommand(t, "", dir, argv...)
		c.Env = append(c.Env, "GOLOCK_STORE="+url)
		return c.start(t)
	}
}

// entry is the command of the crontab's line with this job.
func entry(t *testing.T, crontab, job string) string {
	t.Helper()
	for _, line := range lines(read(t, filepath.Join(examples, "cron", crontab))) {
		if strings.Contains(line, "-- "+job) && !strings.HasPrefix(line, "#") {
			_, command, _ := strings.Cut(line, "  golock ")
			return "golock " + strings.TrimSpace(command)
		}
	}
	t.Fatalf("%s has no line for %s", crontab, job)
	return ""
}

// Twenty hosts reach the same minute: one of them runs, silently for all the others, and no later one does until the
// hold has been given back.
func TestCronFleet(t *testing.T) {
	t.Parallel()
	const hosts = 20
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bin", "sync-accounts"), 0o755, "#!/bin/sh\necho begin >>log\necho end >>log\n")
	write(t, filepath.Join(dir, "bin", "reindex-host"), 0o755, "#!/bin/sh\necho begin >>log2\nsleep 0.02\necho end >>log2\n")
	start := onRedis(t)
	path := "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")
	tick := func(job string) {
		t.Helper()
		var all []*command
		for range hosts {
			all = append(all, start(dir, "env", path, "sh", "-c", entry(t, "crontab.fleet", job)))
		}
		for _, c := range all {
			if code := c.code(t); code != 0 || c.out.Len() > 0 || c.said() != "" {
				t.Errorf("%q: code %d, output %q %q; cron would mail it", c.Args, code, &c.out, &c.err)
			}
		}
	}
	for round := 1; round <= 2; round++ {
		tick("sync-accounts")
		tick("sync-accounts") // clocks that are late
		if got, want := read(t, filepath.Join(dir, "log")), strings.Repeat("begin\nend\n", round); got != want {
			t.Fatalf("tick %d: the jobs wrote %q, want %q", round, got, want)
		}
		if code := start(dir, "golock", "break", "--name", "sync").code(t); code != 0 {
			t.Fatalf("break: code %d", code)
		}
	}
	tick("reindex-host")
	text := read(t, filepath.Join(dir, "log2"))
	if n := strings.Count(text, "end"); n != hosts || most(text) > 3 {
		t.Errorf("%d of %d hosts, %d at once", n, hosts, most(text))
	}
}

// steps are the lines of shell in a pipeline of one of the systems.
func steps(t *testing.T, file string) string {
	t.Helper()
	var shell []string
	text := read(t, filepath.Join(examples, "ci", file))
	if strings.HasSuffix(file, ".sh") {
		return text
	}
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
	testkit.Need(t, "make")
	testkit.Need(t, "cc")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Makefile"), 0o644, "all: a.o b.o c.o\n")
	for _, c := range []string{"a.c", "b.c", "c.c"} {
		write(t, filepath.Join(dir, c), 0o644, "int f;\n")
	}
	write(t, filepath.Join(dir, "deploy.sh"), 0o755, "#!/bin/sh\necho begin >>log\nsleep 0.05\necho end $1 >>log\n")
	start := onRedis(t)
	var all []*command
	files := []string{"github-actions.yml", "gitlab-ci.yml", "Jenkinsfile", "step.sh"}
	for _, file := range files {
		all = append(all, start(dir, "sh", "-e", "-c", steps(t, file)))
	}
	for _, c := range all {
		if code := c.code(t); code != 0 || c.said() != "" {
			t.Errorf("%q: code %d, stderr %s", c.Args, code, &c.err)
		}
	}
	if text := read(t, filepath.Join(dir, "log")); text != strings.Repeat("begin\nend production\n", len(files)) {
		t.Errorf("deployments overlap:\n%s", text)
	}

	// Three pipelines have an environment each, over their jobs; the fourth waits until one gives its own back.
	script := filepath.Join(examples, "ci", "environments.sh")
	got := map[string]string{}
	pipeline := func(n int) string {
		d := filepath.Join(dir, fmt.Sprint(n))
		testkit.Must(t, os.MkdirAll(d, 0o755))
		return d
	}
	take := func(n int) {
		t.Helper()
		c := start(pipeline(n), script, "take")
		if code := c.code(t); code != 0 || c.said() != "" {
			t.Fatalf("take: code %d, stderr %s", code, &c.err)
		}
		got[strings.TrimSpace(c.out.String())] = pipeline(n)
	}
	for n := range 3 {
		take(n)
	}
	if len(got) != 3 || got["0"] == "" || got["1"] == "" || got["2"] == "" {
		t.Fatalf("the environments are %q", got)
	}
	late := start(pipeline(3), script, "take")
	testkit.Eventually(t, "the fourth in the queue", func() bool {
		c := start(dir, "golock", "ls", "--json", "environments")
		c.code(t)
		return strings.Contains(c.out.String(), `"waiting"`)
	})
	if code := start(got["1"], script, "give").code(t); code != 0 {
		t.Errorf("give: code %d", code)
	}
	if code := late.code(t); code != 0 || late.out.String() != "1\n" {
		t.Errorf("the fourth: code %d, environment %q, want 1; stderr %s", code, &late.out, &late.err)
	}
}

// One leads; when its golock is killed, or it is told to step down, the next in line does, and never two at once.
func TestLeader(t *testing.T) {
	t.Parallel()
	dir, work := copyExample(t, "leader"), t.TempDir()
	log := filepath.Join(work, "log")
	write(t, filepath.Join(work, "lead"), 0o755, `#!/bin/sh
# lead HOST: says that it leads, and in which term of office, until it is ended
cd "${0%/*}" || exit 1
mkdir throne || echo "two leaders" >>log
trap 'rmdir throne; exit 143' TERM
echo "begin $1 $GOLOCK_FENCE" >>log
while [ -e log ]; do sleep 0.02; done
`)
	start := onRedis(t)
	stand := func(host string, line int) *command {
		t.Helper()
		c := start(dir, "./leader", filepath.Join(work, "lead"), host)
		testkit.Eventually(t, host+" stands in line", func() bool {
			ls := start(dir, "golock", "ls", "--json", "leader")
			ls.code(t)
			return strings.Count(ls.out.String(), `"state"`) == line
		})
		return c
	}
	var fence int64
	leads := func(host string) {
		t.Helper()
		testkit.Eventually(t, host+" leads", func() bool { return strings.Contains(read(t, log), "begin "+host+" ") })
		all := lines(read(t, log))
		var term int64
		if _, err := fmt.Sscanf(all[len(all)-1], "begin "+host+" %d", &term); err != nil || term <= fence {
			t.Errorf("the log is %q: %v, the last term was %d", all, err, fence)
		}
		fence = term
	}
	a, b := stand("a", 1), stand("b", 2)
	c := stand("c", 3)
	leads("a")
	if err := a.Process.Kill(); err != nil { // golock itself: the guard kills the command, with the throne
		t.Fatal(err)
	}
	testkit.Eventually(t, "a has gone", func() bool {
		return os.Remove(filepath.Join(work, "throne")) == nil || strings.Contains(read(t, log), "begin b ")
	})
	leads("b")
	if code := start(dir, "golock", "break", "--name", "leader").code(t); code != 0 {
		t.Errorf("break: code %d", code)
	}
	if code := b.code(t); code != 79 {
		t.Errorf("the one that stepped down: code %d, stderr %s", code, &b.err)
	}
	leads("c")
	testkit.Must(t, os.Rename(log, log+".old"))
	if code := c.code(t); code != 0 {
		t.Errorf("the last: code %d, stderr %s", code, &c.err)
	}
}
