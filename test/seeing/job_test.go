//go:build integration

// The line of a run that waits under the job control of a shell, and the message of a busy lock.

package seeing_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func TestLineAndJobControl(t *testing.T) {
	t.Parallel()
	s := local(t)
	release := s.Hold("job").Finish
	x := s.Bash()
	x.Shows("ready> ")
	x.Key("$G run --name job -- echo do''ne\n")
	x.Shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by`)
	x.Key("\x1a")
	x.Shows(`\r\x1b\[K\r?\n?.*Stopped`) // the line is gone before the shell writes
	x.Shows("ready> ")
	// In the background it writes nothing, whatever the shell does meanwhile.
	x.Key("bg; sleep 2.5; echo la''ter\n")
	if quiet := x.Shows("later"); strings.Contains(quiet, "waiting") {
		t.Errorf("in the background: %q", quiet)
	}
	if seen := x.Stdout()[strings.LastIndex(x.Stdout(), "bg; sleep"):]; strings.Contains(seen, "waiting for") {
		t.Errorf("in the background: %q", seen)
	}
	x.Key("fg\n")
	x.Shows(`\r\x1b\[Kgolock: waiting for "job": next in line, held by`)
	release()
	x.Shows(`\r\x1b\[Kdone`)
	x.Shows("ready> ")
	x.Key("exit\n")
	x.Wait()
}

// The message of a busy lock names the holder's process, command and start, and its host where
// that may be another one.
func TestBusyNamesTheHolder(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	testkit.Must(t, err)
	const when = ` since [0-9-]{10} [0-9:]{8}$`
	const here = `is busy: held by pid [0-9]+ \(.*\)` + when
	leased := `is busy: held by pid [0-9]+ on ` + regexp.QuoteMeta(host) + ` \(sh \+[0-9]+ args\)` + when
	dir := testkit.Place(t, 0o755)
	for _, c := range []struct{ store, want string }{
		{"", strings.Replace(here, ".*", "sh -c .*", 1)},
		{"flock://" + dir + "/flock", here},
		{"bind://" + dir + "/socket", here},
		{"mkdir://" + dir, leased},
		{redistest.StoreURL(t), leased},
	} {
		s := on(t, c.store)
		release := s.Hold("job").Finish
		for _, how := range []string{"-n", "-w1.5"} { // a server has so long to answer, on a busy machine too
			r := s.Golock("run", "--name", "job", how, "--", "true").Run()
			if got := strings.TrimSpace(r.Stderr); r.Code != 75 || !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("%s, %s: %v does not match %q", s.Store, how, r, c.want)
			}
		}
		release()
	}
}
