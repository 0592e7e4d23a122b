//go:build integration

package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// blocks are the fenced blocks of a page in one language.
func blocks(t *testing.T, page, language string) (all []string) {
	t.Helper()
	for _, block := range strings.Split(read(t, "../../"+page), "```"+language+"\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		all = append(all, block)
	}
	return all
}

// pageSandbox is a sandbox in which the commands of the pages run: on a Redis server, with programs
// that stand for those that the pages name, and with its directory in the place of the system's.
func pageSandbox(t *testing.T) (*testkit.Sandbox, *strings.Replacer) {
	t.Helper()
	url := redistest.StoreURL(t)
	s := sandbox(t, "", url)
	s.Write("store", url+"\n")
	s.Write("old.store", "local://"+s.Path("old")+"\n")
	s.Write("nightly.new", "#!/bin/sh\n")
	for _, program := range []string{"train", "report", "load", "big", "build", "deploy", "job", "nightly", "sync-accounts",
		"make-backup", "reindex-host", "curl"} {
		s.Script("bin/"+program, "#!/bin/sh\n")
	}
	s.Script("bin/make", "#!/bin/sh\nfor f; do [ \"$f\" != site.new ] || echo new >\"$f\"; done\n")
	s.Script("bin/runitor", "#!/bin/sh\n[ \"$1\" = -uuid ] && shift 3 && exec \"$@\"\n")
	s.Script("bin/sudo", "#!/bin/sh\nexec \"$@\"\n")
	for _, program := range []string{"apply", "reindex", "report"} {
		s.Script(program, "#!/bin/sh\n")
	}
	testkit.Must(t, os.Mkdir(s.Path("log"), 0o755))
	return s, strings.NewReplacer(
		"GOLOCK_STORE_FILE=/etc/golock.store\n", "", // TestReadmeCrontab has one
		"/etc/golock.store", s.Path("store"), "/etc/golock.old", s.Path("old.store"), "/etc/golock.new", s.Path("store"),
		"--store-file FILE", "--store-file "+s.Path("store"),
		"postgres://shop@db.example/shop", url,
		"GOLOCK_STORE=redis://locks.example.net", "GOLOCK_STORE="+url,
		"flock:///run/lock", "flock://"+s.Dir,
		"/var/lib/sync-locks", s.Path("sync-locks"), "-g sync", "-g root",
		"/var/log/golock", s.Path("log"),
		"/var/lib/prometheus/node-exporter", s.Path("log"),
		"/usr/local/bin/nightly", s.Path("nightly.installed"),
		"PATH=/usr/local/bin:/usr/bin:/bin\n", "",
		"jitter 10s", "jitter 0.1s",
		"golock ls nightly --watch", "{ timeout --preserve-status -s INT 1 golock ls nightly --watch || [ $? = 130 ]; }",
		"-- sleep 2h", "-- true",
		"--kill 20", "--loops 4",
	)
}

// Every command in a block of shell of the pages runs, as it is but for names of this machine.
func TestPages(t *testing.T) {
	t.Parallel()
	s, in := pageSandbox(t)
	t.Run("shell", func(t *testing.T) {
		for page, least := range map[string]int{"docs/guide.md": 8, "docs/runbook.md": 7, "docs/operations.md": 1, "docs/choosing.md": 1} {
			script, all := "set -e\nexport TZ=Asia/Kolkata\nid=$(golock acquire --name held --max 9 --for none --ttl 5m)\n", blocks(t, page, "sh")
			if len(all) < least {
				t.Errorf("%s has only %d blocks of shell", page, len(all))
			}
			for _, block := range all {
				if strings.Contains(block, "FLOCKER") {
					continue // a script that locks itself: TestPageLocksItself
				}
				// A script of its own: exit, trap and $$ are meant for one.
				block = strings.NewReplacer("golock ls nightly -q;", "golock ls nightly -q ||").Replace(in.Replace(block))
				if strings.Contains(block, "trap ") {
					block = "cat >script <<'END'\n" + block + "END\nsh -e script\n"
				}
				script += "echo '-- next' >&2\n" + block
			}
			r := s.Exec("sh", "-xc", script).Run()
			if r.Code != 0 {
				t.Errorf("%s: %v", page, r)
			}
		}
	})
	t.Run("crontab", func(t *testing.T) {
		schedule := regexp.MustCompile(`^(?:[0-9*/]+ +){5}`)
		for _, page := range []string{"docs/guide.md", "docs/operations.md"} {
			script := "set -ea\n"
			for _, block := range blocks(t, page, "crontab") {
				for _, line := range lines(in.Replace(block)) {
					script += schedule.ReplaceAllString(line, "") + "\n"
				}
			}
			succeeds(s.Exec("sh", "-c", script).Begin())
		}
	})
}

// The script that locks itself, as the guide has it, runs once and knows that it has the lock.
func TestPageLocksItself(t *testing.T) {
	t.Parallel()
	s := sandbox(t, "", redistest.StoreURL(t))
	for _, block := range blocks(t, "docs/guide.md", "sh") {
		if strings.Contains(block, "FLOCKER") {
			s.Script("locks-itself", "#!/bin/sh\n"+lines(block)[1]+"\necho \"$GOLOCK_LOCK_NAME\"\n")
		}
	}
	if out := succeeds(s.Exec("./locks-itself").Begin()); out != "job\n" {
		t.Errorf("it prints %q", out)
	}
}
