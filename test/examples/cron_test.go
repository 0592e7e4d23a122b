//go:build integration

package examples_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A job that lasts longer than its period, under a real cron daemon with a mount namespace of its
// own, where spool, pid file and mailer are the test's, and a clock in which a minute takes a second.
func TestCron(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "") // no GOLOCK_STORE: the default store is what is shown
	for _, dir := range []string{"spool", "cron.d", "run", "mail"} {
		testkit.Must(t, os.Mkdir(s.Path(dir), 0o755))
	}
	// A place that is there: golock would not make one in a /run that is not that of process 1.
	testkit.Must(t, errors.Join(os.Mkdir(s.Path("run/golock"), 0o755), os.Mkdir(s.Path("run/golock/0"), 0o700)))
	s.Write("crontab", "")
	mark := s.Env[len(s.Env)-1] // cron clears the environment: without it a late job would outlive the test
	// A minute takes a second: a night would take an hour.
	table := strings.Replace(read(t, "cron", "crontab"), "0 1 * * *", "* * * * *", 1)
	s.Write("spool/root", mark+"\n"+table)
	testkit.Must(t, os.Chmod(s.Path("spool/root"), 0o600))
	testkit.Output(t, "", "cp", testkit.Need(t, "/usr/sbin/cron"), s.Path("cron"))
	testkit.Output(t, "", "cc", "-O2", "-shared", "-fPIC", "-o", s.Path("fastclock.so"), "testdata/fastclock.c")
	in := strings.NewReplacer("DIR", s.Dir, "GOLOCK", testkit.Golock)
	script := func(name, text string) { s.Script(name, in.Replace(text)) }
	// cron's mailer, in a /usr/sbin that holds nothing else.
	script("sbin/sendmail", "#!/bin/sh\ncat >'DIR/mail/'$$.part && mv 'DIR/mail/'$$.part 'DIR/mail/'$$.mail\n")
	// Stands before the program and writes down how each start ended.
	script("bin/golock", `#!/bin/sh
'GOLOCK' "$@"
code=$?
[ "$1" = run ] && echo "$3 $code" >>'DIR/starts'
exit $code
`)
	// The job that lasts too long: it ends when the test says so.
	script("bin/make-report", `#!/bin/sh
cd 'DIR' || exit 1
mkdir inside || echo overlap >>jobs
echo begin >>jobs
n=$(grep -c begin jobs)
until [ -e "end.$n" ]; do
	[ -e jobs ] || exit 1 # the test is over
	sleep 0.1
done
echo end >>jobs
rmdir inside
`)
	// The job that fails, and says so.
	script("bin/make-backup", "#!/bin/sh\necho copied 3 of 5 files\necho disk full >&2\nexit 3\n")
	end := func(n int) { _ = os.WriteFile(s.Path(fmt.Sprint("end.", n)), nil, 0o600) }
	t.Cleanup(func() {
		for n := range 100 {
			end(n)
		}
	})
	cron := s.Exec("unshare", "--mount", "--propagation", "private", "sh", "-ec", `
		mount --bind spool /var/spool/cron/crontabs
		mount --bind cron.d /etc/cron.d
		mount --bind crontab /etc/crontab
		mount --bind run /run
		mount --bind sbin /usr/sbin
		mount --bind bin /usr/local/bin
		LD_PRELOAD=./fastclock.so exec ./cron -f`).Begin()

	count := func(file, line string) int { return strings.Count("\n"+s.Read(file), "\n"+line+"\n") }
	await := func(what, file, line string, n int) {
		t.Helper()
		s.Eventually(what, func() bool { return count(file, line) >= n })
	}
	// What a login shell on the same machine does, with nothing in its environment.
	shell := func(argv ...string) testkit.Result {
		inside := []string{"nsenter", "--mount", fmt.Sprintf("--target=%d", cron.PID), "env", "-i", testkit.Golock}
		return s.Exec(append(inside, argv...)...).Run()
	}
	for round := 1; round <= 2; round++ {
		await("the job starts", "jobs", "begin", round)
		await("two more starts find it running", "starts", "report 0", count("starts", "report 0")+2)
		if n := count("jobs", "end"); n != round-1 {
			t.Fatalf("%d jobs have ended before they were told to", n)
		}
		if round == 1 {
			if r := shell("ls", "report").Expect(t, 0); !strings.Contains(r.Stdout, "make-report") {
				t.Errorf("ls from a shell does not show cron's job: %v", r)
			}
			shell("run", "--name", "report", "-n", "--", "true").Expect(t, 75)
		}
		end(round)
	}
	await("the third job starts", "jobs", "begin", 3)
	end(3)
	await("it ends", "jobs", "end", 3)
	var mails []string
	s.Eventually("a mail", func() bool {
		mails, _ = filepath.Glob(s.Path("mail/*.mail"))
		return len(mails) > 0
	})
	if jobs := s.Read("jobs"); strings.Contains(jobs, "overlap") || most(jobs) != 1 {
		t.Errorf("two jobs at once:\n%s", jobs)
	}
	starts := lines(s.Read("starts"))
	for _, line := range starts {
		if line != "report 0" && line != "backup 0" && line != "backup 3" {
			t.Errorf("a start ended with %q", line)
		}
	}
	if count("starts", "backup 3") == 0 {
		t.Errorf("the backup's exit code has not reached cron: %q", starts)
	}
	for _, mail := range mails {
		text, err := os.ReadFile(mail)
		testkit.Must(t, err)
		head, body, _ := strings.Cut(string(text), "\n\n")
		if !strings.Contains(head, "golock run --name backup") || body != "copied 3 of 5 files\ndisk full\n" {
			t.Errorf("a mail that is not what the backup printed:\n%s", text)
		}
	}
}

// The lines for a crontab in the README, as they are, with nothing but what Debian's cron gives a
// job: no variables of a login, and a PATH of two directories.
func TestReadmeCrontab(t *testing.T) {
	t.Parallel()
	url := redistest.StoreURL(t)
	jobs := 0
	for i, block := range strings.Split(read(t, "../../README.md"), "```crontab\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		s := testkit.New(t, "")
		testkit.Output(t, "", "install", "-D", testkit.Golock, s.Path("bin/golock"))
		s.Script("bin/sync-accounts", "#!/bin/sh\ncd '"+s.Dir+"'\necho begin >>log\n"+
			"until [ -e go ]; do sleep 0.1; done\necho synced\n")
		// A name of this test's own: the default store, which is what is shown, is the machine's.
		name := fmt.Sprintf("readme-%d-%d", os.Getpid(), i)
		variables := []string{"HOME=/root", "LOGNAME=root", "SHELL=/bin/sh", "PATH=/usr/bin:/bin"}
		for _, line := range lines(block) {
			schedule, entry, found := strings.Cut(line, "  ")
			if !found {
				if strings.HasPrefix(line, "GOLOCK_STORE_FILE=") {
					s.Write("store", url+"\n")
					line = "GOLOCK_STORE_FILE=" + s.Path("store") // a server that is there
				}
				variables = append(variables, line)
				continue
			}
			if len(strings.Fields(schedule)) != 5 {
				t.Fatalf("no line of a crontab: %q", line)
			}
			jobs++
			entry = strings.NewReplacer("--name sync ", "--name "+name+" ", "--jitter 10s", "--jitter 0.1s").Replace(entry)
			cron := s.Exec("unshare", "--mount", "--propagation", "private", "sh", "-ec",
				`mount --bind bin /usr/local/bin && exec "$@"`, "sh", "sh", "-c", entry)
			cron.Env = append(variables, s.Env[len(s.Env)-1]) // by which the sandbox knows its processes
			first := cron.Begin()
			s.AwaitFile("log")
			if out := succeeds(cron.Begin()); out != "" {
				t.Errorf("%s: while it runs it prints %q", line, out)
			}
			s.Write("go", "")
			if out := succeeds(first); out != "synced\n" || s.Read("log") != "begin\n" {
				t.Errorf("%s: printed %q", line, out)
			}
		}
	}
	if jobs != 2 {
		t.Errorf("%d lines were tried", jobs)
	}
}

// cronEntry is the command of a job in one of the crontabs, with a shorter jitter.
func cronEntry(t *testing.T, file, job string) (entry string) {
	t.Helper()
	for _, line := range lines(read(t, "cron", file)) {
		_, command, found := strings.Cut(line, "  golock ")
		if found && line[0] != '#' && strings.HasSuffix(command, "-- "+job) {
			entry = "golock " + strings.Replace(command, "--jitter 10s", "--jitter 0.1s", 1)
		}
	}
	return entry
}

// On etcd, too, one of the hosts runs, and the others say nothing.
func TestCronOnEtcd(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", etcdtest.StoreURL(t))
	s.Script("bin/migrate-accounts", "#!/bin/sh\necho begin >>log\n")
	var all []*testkit.Process
	for range 3 {
		all = append(all, s.Exec("sh", "-c", cronEntry(t, "crontab.etcd", "migrate-accounts")).Begin())
	}
	for _, p := range all {
		if out := succeeds(p); out != "" {
			t.Errorf("it prints %q: cron would mail it", out)
		}
	}
	if log := s.Read("log"); log != "begin\n" {
		t.Errorf("the jobs wrote %q", log)
	}
}

// All hosts reach the same minute: one of them runs, silently for all the others, and no later one
// does until the hold has been given back. The other job runs on every host, three at a time. Only
// the jitter is shorter than in the file.
func TestCronFleet(t *testing.T) {
	t.Parallel()
	const hosts = 12
	s := sandbox(t, "", redistest.StoreURL(t))
	s.Script("bin/sync-accounts", "#!/bin/sh\necho begin >>log\necho end >>log\n")
	s.Script("bin/reindex-host", "#!/bin/sh\necho begin >>log2\nsleep 0.02\necho end >>log2\n")
	tick := func(job string) {
		t.Helper()
		entry := cronEntry(t, "crontab.fleet", job)
		var all []*testkit.Process
		for range hosts {
			all = append(all, s.Exec("sh", "-c", entry).Begin())
		}
		for _, p := range all {
			if out := succeeds(p); out != "" {
				t.Errorf("%s prints %q: cron would mail it", entry, out)
			}
		}
	}
	for round := 1; round <= 2; round++ {
		tick("sync-accounts")
		tick("sync-accounts") // clocks that are late
		if got, want := s.Read("log"), strings.Repeat("begin\nend\n", round); got != want {
			t.Fatalf("tick %d: the jobs wrote %q, want %q", round, got, want)
		}
		s.Golock("break", "--name", "sync").Run().Expect(t, 0)
	}
	tick("reindex-host")
	if log := s.Read("log2"); strings.Count(log, "end") != hosts || most(log) > 3 {
		t.Errorf("%d of %d hosts, %d at once", strings.Count(log, "end"), hosts, most(log))
	}
}
