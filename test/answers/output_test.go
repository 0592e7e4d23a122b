//go:build integration

package answers_test

import (
	"slices"
	"strings"
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/test/testkit"
)

// refusals are standard outputs that take nothing.
var refusals = map[string]string{"closed": "exec >&-", "a full disk": "exec >/dev/full"}

// refusalsOf gives one of the two to each number, in the deep run both.
func refusalsOf(i int) map[string]string {
	if testkit.Deep() {
		return refusals
	}
	what := []string{"closed", "a full disk"}[i%2]
	return map[string]string{what: refusals[what]}
}

// A command whose answer cannot be printed ends with 70, never with 0: a script must not go on as if it
// had the answer. The outputs take turns: each command meets one of them, in the deep run both.
func TestAnswerThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	report := testkit.Place(t, 0o700) + "/report"
	everywhere := []string{"ls", "ls --json", "ls --watch", "break unknown"}
	once := []string{
		"version", "--version", "--help", "run -h", "help ls", "completion bash", "complete ru", "manual", "manual --toml",
		"ls --json unknown", "clean", "doctor", "doctor --json", "report " + report, "check --loops 2", "check --loops 2 --json",
	}
	testkit.Each(t, programs(), func(t *testing.T, _, program string) {
		for kind, store := range stores(t) {
			s := testkit.OnStore(t, store)
			s.Lock("reported", "--report", report, "--", "true").Run().Expect(t, 0)
			holder := s.Hold("job")
			commands := everywhere
			if kind == "local" {
				commands = slices.Concat(everywhere, once)
			}
			for i, command := range commands {
				for what, script := range refusalsOf(i + len(kind)) {
					r := s.Exec(append([]string{program}, strings.Fields(command)...)...).Sh(script).Run()
					if r.Code != 70 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, "golock: write /dev/stdout: ") {
						t.Errorf("%s, %s, %s: %v", kind, command, what, r)
					}
				}
			}
			holder.Finish()
		}
	})
}

// An ID that could not be printed is known to nobody: its slot is given back. The outputs take turns here
// too, but on local, where a file of the lock could get the number of a closed output.
func TestIDThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	testkit.Each(t, programs(), func(t *testing.T, _, program string) {
		all := stores(t)
		all["etcd"] = etcdtest.StoreURL(t)
		for kind, store := range all {
			s := testkit.OnStore(t, store)
			for i, process := range []string{"$$", "none"} {
				if kind == "local" && process == "none" {
					continue
				}
				outputs := refusalsOf(i + len(kind))
				if kind == "local" {
					outputs = refusals
				}
				for what, script := range outputs {
					// The shell lives until its input ends, so the slot is free for another reason than its end.
					p := s.Exec("sh", "-c", "("+script+"; "+program+" acquire --name job --for "+process+`); echo "code $?"; read line`).Start()
					p.Expect("code 70")
					s.Job("-w", "30", "--", "true").Run().Expect(t, 0)
					if !p.Running() {
						t.Errorf("%s, %s: the shell has ended", kind, what)
					}
					p.Tell("end")
					p.Wait().OneLine(t, "golock: write /dev/stdout: ")
				}
			}
		}
	})
}
