//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golock/test/testkit"
)

// A job that overruns its period under a real cron daemon. The daemon has its own mount namespace, in which its spool,
// its pid file and its mailer are the test's, and a clock in which a minute passes in a second.
func TestCron(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("cron runs as root only, so must this test")
	}
	const daemon = "/usr/sbin/cron"
	if _, err := os.Stat(daemon); err != nil {
		t.Fatalf("%v; run: make deps", err)
	}
	for _, program := range []string{"cc", "unshare", "nsenter", "mount"} {
		testkit.Need(t, program)
	}

	dir := t.TempDir()
	in := func(path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
	jobs, starts, mail := in("jobs"), in("starts"), in("mail")

	crontab, err := os.ReadFile(filepath.Join(examples, "cron", "crontab"))
	testkit.Must(t, err)
	write(t, in("spool", "root"), 0o600, string(crontab))
	write(t, in("crontab"), 0o644, "")
	for _, d := range []string{"cron.d", "run", "mail"} {
		testkit.Must(t, os.Mkdir(in(d), 0o755))
	}
	// cron's mailer, in a /usr/sbin that holds nothing else.
	write(t, in("sbin", "sendmail"), 0o755, fmt.Sprintf("#!/bin/sh\ncat >'%s/'$$.part && mv '%[1]s/'$$.part '%[1]s/'$$.mail\n", mail))
	b, err := os.ReadFile(daemon)
	testkit.Must(t, err)
	write(t, in("cron"), 0o755, string(b))
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", in("fastclock.so"), "testdata/fastclock.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	// Stands before the program and writes down what became of each start.
	write(t, in("bin", "golock"), 0o755, fmt.Sprintf(`#!/bin/sh
'%s' "$@"
code=$?
[ "$1" = run ] && echo "$3 $code" >>'%s'
exit $code
`, golock, starts))
	// The job that overruns: it ends when the test says so.
	write(t, in("bin", "make-report"), 0o755, fmt.Sprintf(`#!/bin/sh
cd '%s' || exit 1
mkdir inside || echo overlap >>jobs
echo begin >>jobs
n=$(grep -c begin jobs)
until [ -e "end.$n" ]; do
	[ -e jobs ] || exit 1 # the test is over
	sleep 0.02
done
echo end >>jobs
rmdir inside
`, dir))
	// The job that fails, and says so.
	write(t, in("bin", "make-backup"), 0o755, "#!/bin/sh\necho copied 3 of 5 files\necho disk full >&2\nexit 3\n")
	t.Cleanup(func() {
		for n := range 100 {
			os.WriteFile(in(fmt.Sprintf("end.%d", n+1)), nil, 0o644)
		}
	})

	cron := newCommand(t, "", dir, "unshare", "--mount", "--propagation", "private", "sh", "-ec", `
		mount --bind spool /var/spool/cron/crontabs
		mount --bind cron.d /etc/cron.d
		mount --bind crontab /etc/crontab
		mount --bind run /run
		mount --bind sbin /usr/sbin
		mount --bind bin /usr/local/bin
		LD_PRELOAD=./fastclock.so exec ./cron -f`)
	cron.Env = os.Environ() // no GOLOCK_STORE: the default store is what is shown
	cron.start(t)

	count := func(path, line string) (n int) {
		for _, l := range lines(read(t, path)) {
			if l == line {
				n++
			}
		}
		return n
	}
	// What a login shell on the same machine does, with nothing in its environment.
	shell := func(argv ...string) *command {
		argv = append([]string{"nsenter", "--mount", fmt.Sprintf("--target=%d", cron.Process.Pid), "env", "-i", golock}, argv...)
		c := newCommand(t, "", dir, argv...)
		c.Env = os.Environ()
		return c.start(t)
	}

	for round := 1; round <= 2; round++ {
		testkit.Eventually(t, "the job's start", func() bool { return count(jobs, "begin") == round })
		skipped := count(starts, "report 0")
		testkit.Eventually(t, "two more starts, which find it running", func() bool { return count(starts, "report 0") >= skipped+2 })
		if n := count(jobs, "end"); n != round-1 {
			t.Fatalf("%d jobs have ended before they were told to", n)
		}
		if round == 1 {
			ls := shell("ls", "report")
			if code := ls.code(t); code != 0 || !strings.Contains(ls.out.String(), "make-report") {
				t.Errorf("ls from a shell: code %d, does not show cron's job\nstdout: %s\nstderr: %s", code, &ls.out, &ls.err)
			}
			if code := shell("run", "--name", "report", "-n", "--", "true").code(t); code != 75 {
				t.Errorf("run -n from a shell beside cron's job: code %d, want 75", code)
			}
		}
		write(t, in(fmt.Sprintf("end.%d", round)), 0o644, "")
	}
	testkit.Eventually(t, "the third job", func() bool { return count(jobs, "begin") == 3 })
	write(t, in("end.3"), 0o644, "")
	testkit.Eventually(t, "its end", func() bool { return count(jobs, "end") == 3 })
	testkit.Eventually(t, "a mail", func() bool { m, _ := filepath.Glob(mail + "/*.mail"); return len(m) > 0 })

	if s := read(t, jobs); strings.Contains(s, "overlap") || most(s) != 1 {
		t.Errorf("two jobs at once:\n%s", s)
	}
	for _, line := range lines(read(t, starts)) {
		if line != "report 0" && line != "backup 0" && line != "backup 3" {
			t.Errorf("a start ended with %q", line)
		}
	}
	if count(starts, "backup 3") == 0 {
		t.Error("the backup's exit code has not reached cron")
	}
	mails, err := filepath.Glob(mail + "/*.mail")
	testkit.Must(t, err)
	for _, m := range mails {
		text := read(t, m)
		head, body, _ := strings.Cut(text, "\n\n")
		if !strings.Contains(head, "golock run --name backup") {
			t.Errorf("a mail that is not the backup's:\n%s", text)
		}
		if body != "copied 3 of 5 files\ndisk full\n" {
			t.Errorf("the mail is not just what the backup printed:\n%s", text)
		}
	}
}
