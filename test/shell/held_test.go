//go:build integration

package shell_test

import (
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// job is a run on a Redis server whose command executes the lines of its stdin and prints the exit
// code of each.
type job struct {
	*testkit.Process
	s *sandbox
}

// startJob starts one.
func startJob(t *testing.T, store string, flags ...string) *job {
	t.Helper()
	s := newSandbox(t, store, "sh")
	// What it asks with has no store's password, nor anything else of the kind.
	command := `unset GOLOCK_STORE; while read -r line; do eval "$line" </dev/null; echo "$line: $?"; done`
	j := &job{s.Job(append(flags, "--", "sh", "-c", command)...).Start(), s}
	j.comes(":", "0")
	return j
}

// comes has the job execute a line, which must end with that exit code.
func (j *job) comes(line, want string) {
	j.T.Helper()
	j.Tell(line)
	j.Expect(line + ": " + want)
}

// forget removes the job's entry from the store.
func (j *job) forget() {
	j.T.Helper()
	at, err := url.Parse(j.s.Store)
	testkit.Must(j.T, err)
	key, entry, _ := strings.Cut(j.s.List("job")[0].ID, "-")
	set := at.Query().Get("prefix") + ":{" + key + "}:"
	redistest.Shared(j.T).Do("ZREM", set+"h", entry)
	redistest.Shared(j.T).Do("ZADD", set+"g", time.Now().UnixMilli(), entry)
}

// held asks the golock of the run, which asks the store: 69 while that is out of reach.
func TestHeldThroughAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	j := startJob(t, server.URL("quarantine=0s"))
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

// held reports a lost slot, and the command is stopped at once, not at the next renewal.
func TestHeldOfALostSlot(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t))
	var renewals atomic.Int64
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "renew" {
			renewals.Add(1)
		}
		return redistest.Pass
	})
	j := startJob(t, proxy.URL()+"&prefix=held"+strconv.Itoa(os.Getpid()), "--ttl", "600", "--kill-after", "1")
	// golock renews once more when it listens, and must not find out by itself: Go's runtime lets
	// a held that has just been started die of a TERM that it inherits as ignored.
	j.comes("golock held", "0")
	j.s.Eventually("it renews because it listens", func() bool { return renewals.Load() == 2 })
	j.comes("trap '' TERM", "0")
	j.forget()
	j.comes("golock held", "79")
	j.Expects(79, `golock: lock "job": the slot is not held any more: it is gone from the store, last renewed `, "s ago; the command was stopped\n")
}

// With --on-lost warn it goes on, after one line.
func TestHeldOfALostSlotThatOnlyWarns(t *testing.T) {
	t.Parallel()
	j := startJob(t, redistest.StoreURL(t), "--ttl", "600", "--on-lost", "warn")
	j.forget()
	j.comes("golock held", "79")
	j.comes("golock held", "79")
	j.Tell("exit 3")
	if r := j.Expects(3); strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("%v, want one line", r)
	}
}

// Only its own golock gives the slot of a run back: release is refused with 64. held of another user
// gets no answer: 79.
func TestRunAsAnotherUser(t *testing.T) {
	t.Parallel()
	j := startJob(t, redistest.Start(t).URL("quarantine=0s"))
	id := j.s.List("job")[0].ID
	j.s.Golock("release", "--store", j.s.Store, id).As(stranger).Begin().Expects(64)
	j.comes("setpriv --reuid 12345 --regid 12345 --clear-groups golock held", "79")
	j.comes("golock held", "0")
	j.Tell("exit 3")
	j.Expects(3).Quiet(t)
}

// If the ID cannot be printed, acquire gives the slot back: nobody else could.
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
