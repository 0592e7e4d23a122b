//go:build integration

package shell_test

import (
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// job is a run on a Redis server whose command does what it is told, line by
// line, and prints each line's exit code.
type job struct {
	*testkit.Process
	s *sandbox
}

// startJob starts one, on a server of its own or on the shared one.
func startJob(t *testing.T, server *redistest.Server, flags ...string) *job {
	t.Helper()
	store := redistest.StoreURL(t)
	if server != nil {
		store = server.URL("quarantine=0s")
	}
	s := newSandbox(t, store, "sh")
	// What it asks with has no store's password, nor anything else of the kind.
	command := `unset GOLOCK_STORE; while read -r line; do eval "$line" </dev/null; echo "$line: $?"; done`
	j := &job{s.Job(append(flags, "--", "sh", "-c", command)...).Start(), s}
	j.comes(":", "0")
	return j
}

// comes has the job do something that comes to an exit code.
func (j *job) comes(line, want string) {
	j.T.Helper()
	j.Tell(line)
	j.Expect(line + ": " + want)
}

// forget takes the job's entry out of the store, as somebody who gave the slot
// away.
func (j *job) forget() {
	j.T.Helper()
	at, err := url.Parse(j.s.Store)
	testkit.Must(j.T, err)
	key, entry, _ := strings.Cut(j.s.ids("job", "holding")[0], "-")
	set := at.Query().Get("prefix") + ":{" + key + "}:"
	redistest.Shared(j.T).Do("ZREM", set+"h", entry)
	redistest.Shared(j.T).Do("ZADD", set+"g", time.Now().UnixMilli(), entry)
}

// The golock of the run asks the store: with it, and while that is out of reach
// nothing can be said.
func TestHeldThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	j := startJob(t, server)
	j.comes("golock held", "0")
	j.comes("golock run --store local://$PWD/locks --name x -- golock held", "0")
	server.Pause()
	j.comes("golock held", "69")
	server.Resume()
	j.s.Eventually("it is held again", func() bool {
		j.Tell("golock held")
		return j.Line() == "golock held: 0"
	})
	j.Tell("exit 3")
	j.Expects(3)
}

// A command whose slot is lost hears of it, and is stopped at once, not at the
// next renewal.
func TestHeldOfALostSlot(t *testing.T) {
	t.Parallel()
	j := startJob(t, nil, "--ttl", "600", "--kill-after", "1")
	j.comes("golock held", "0")
	j.comes("trap '' TERM", "0")
	j.forget()
	j.comes("golock held", "79")
	j.Expects(79, `golock: lock "job": the slot is not held any more: it is gone from the store, last renewed `, "s ago; the command was stopped\n")
}

// With --on-lost warn it goes on, and hears the same again.
func TestHeldOfALostSlotThatOnlyWarns(t *testing.T) {
	t.Parallel()
	j := startJob(t, nil, "--ttl", "600", "--on-lost", "warn")
	j.forget()
	j.comes("golock held", "79")
	j.comes("golock held", "79")
	j.Tell("exit 3")
	j.Expects(3)
}

// Only its own golock may give the slot of a command back: also who can ask
// nobody but the store, as on another machine, is refused. Another user who asks
// whether it is held is told that nobody answers.
func TestRunAsAnotherUser(t *testing.T) {
	t.Parallel()
	j := startJob(t, redistest.Start(t))
	id := j.s.ids("job", "holding")[0]
	j.s.Golock("release", "--store", j.s.Store, id).As(stranger).Begin().Expects(64)
	j.comes("setpriv --reuid 12345 --regid 12345 --clear-groups golock held", "79")
	j.comes("golock held", "0")
	j.Tell("exit 3")
	j.Expects(3).Quiet(t)
}

// An ID that nobody reads, or that cannot be printed, is that of no slot: there would be
// nobody to give it back.
func TestAcquireWithoutAReader(t *testing.T) {
	t.Parallel()
	everywhere(t, func(s *sandbox) {
		read, write, err := os.Pipe()
		testkit.Must(t, err)
		read.Close()
		defer write.Close()
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		testkit.Must(t, err)
		defer full.Close()
		for _, whom := range []string{"none", strconv.Itoa(os.Getpid())} {
			if whom == "none" && s.IsLocal() {
				continue
			}
			for _, out := range []*os.File{write, full} {
				acquire := s.Golock("acquire", "--name", "unread", "--for", whom, "--hold", "1h")
				acquire.Stdout = out
				acquire.Begin().Expects(70)
				s.free("unread")
			}
		}
	})
}
