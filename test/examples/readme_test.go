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

// The crontab lines of the README, as they stand there, with nothing but what Debian's cron gives a job: no variables of a
// login, and a PATH of two folders.
func TestReadmeCrontab(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("/usr/local/bin is replaced for this test: it must run as root")
	}
	readme := read(t, filepath.Join(examples, "..", "..", "README.md"))
	_, section, _ := strings.Cut(readme, "\n## In a crontab\n")
	section, _, _ = strings.Cut(section, "\n## ")
	url := redistest.StoreURL(t)
	jobs := 0
	for i, block := range strings.Split(section, "```crontab\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		dir := t.TempDir()
		bin := filepath.Join(dir, "bin")
		mustRun(t, "", "", "install", "-D", golock, filepath.Join(bin, "golock"))
		write(t, filepath.Join(bin, "sync-accounts"), 0o755, fmt.Sprintf("#!/bin/sh\necho begin >>'%[1]s/log'\nuntil [ -e '%[1]s/go' ]; do sleep 0.02; done\necho synced\n", dir))
		// A name of this test's own: the default store, which is what is shown, is the machine's.
		name := fmt.Sprintf("readme-%d-%d", os.Getpid(), i)
		variables := []string{"HOME=/root", "LOGNAME=root", "SHELL=/bin/sh", "PATH=/usr/bin:/bin"}
		for _, line := range lines(block) {
			schedule, entry, found := strings.Cut(line, "  ")
			if !found {
				key, _, _ := strings.Cut(line, "=")
				variables = append(variables, key+"="+url) // a server that is there
				continue
			}
			if len(strings.Fields(schedule)) != 5 {
				t.Fatalf("no line of a crontab: %q", line)
			}
			jobs++
			entry = strings.Replace(entry, "--name sync ", "--name "+name+" ", 1)
			argv := append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec",
				`mount --bind "$0" /usr/local/bin && exec "$@"`, bin, "env", "-i"}, variables...)
			argv = append(argv, "sh", "-c", entry)
			first := newCommand(t, "", dir, argv...).start(t)
			testkit.Eventually(t, "the job's start", func() bool { return read(t, filepath.Join(dir, "log")) == "begin\n" })
			second := newCommand(t, "", dir, argv...).start(t)
			if code := second.code(t); code != 0 || second.out.Len() > 0 || second.said() != "" {
				t.Errorf("%s: while it runs: code %d, output %q %q; want silence", line, code, &second.out, &second.err)
			}
			write(t, filepath.Join(dir, "go"), 0o644, "")
			if code := first.code(t); code != 0 || first.out.String() != "synced\n" || first.said() != "" {
				t.Errorf("%s: code %d, output %q %q", line, code, &first.out, &first.err)
			}
		}
	}
	if jobs != 2 {
		t.Errorf("%d lines were tried", jobs)
	}
}
