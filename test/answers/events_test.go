//go:build integration

package answers_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// runsOfEvents are shell commands that together log every event, all at the same time. $run is golock run
// with -v, $local and $mkdir are stores, $far is one whose renewals take a third of the TTL. Behind $unsteady the first renewals and all releases fail, behind
// $stubborn the evictions, and behind $messy what comes after the second release.
const runsOfEvents = `
export GOLOCK_LOG_FORMAT=json
export run="golock run -v"
exec 2>>log
each() { "$@" & }
each $run --store local://$PWD/new --name a --jitter 0.01 --rewrite USR2:0 -- sh -c 'trap "exit 0" USR1; kill -USR2 $PPID; kill -USR1 $PPID; while :; do sleep 0.5; done'
each env GOLOCK_TTL=5s $run --store $local --name a -- true
each $run --store $local --name busy -- env -u GOLOCK_HELD $run --store $local --name busy -n -E 0 -- true
each $run --store $local --name second -- env -u GOLOCK_HELD $run --store $local --name first --name second --wait 0.1 -E 0 -- true
each $run --store $local --name queue -- sh -c 'env -u GOLOCK_HELD $run --store $local --name queue --report reports -- true &
	until grep -q "still waiting\",\"name\":\"queue" log; do sleep 0.5; done; kill $!; wait $!'
each sh -c 'export LISTEN_PID=$$; exec $run --store $local --name sockets -- true'
each $run --store $local --name limit --time-limit 0.1 -k 0.1 -- sh -c 'trap "" TERM; while :; do sleep 1; done'
each $run --store $mkdir --name killed -- sh -c 'kill -KILL $PPID; sleep 60'
each $run --store $local --name evicted -- setsid --wait golock break -v --store $local evicted
each $run --store $mkdir --name evicted -- sh -c 'setsid -f golock break -v --store $mkdir evicted; sleep 60'
each $run --store $mkdir-2 --name lost --ttl 5s --on-lost warn -- sh -c 'rm -r mkdir-2/*; until grep -q "is lost" log; do sleep 0.5; done'
each $run --store redis://127.0.0.1:1 --name out --wait 0.1 --on-unavailable run -- true
each $run --store $unsteady --name unsteady --ttl 10s -- sh -c 'until grep -q "answers again" log; do sleep 0.5; done'
each $run --store $stubborn --name stubborn --hold 1m -- /no/such/command
each $run --store $far --name far --ttl 3s -- sh -c 'until grep -q "too far away" log; do sleep 0.5; done'
each golock check --store $messy --loops 2 --children 2
each $run --store $local --name closed --exec -- bash -c 'for fd in {3..63}; do eval "exec $fd>&-"; done; golock ls --json --store $local closed'
cp "$(command -v setpriv)" as-root
chmod u+s as-root
mkdir -m 777 other
each setpriv --reuid 4711 --regid 4711 --clear-groups $run --store local://$PWD/other --name root -- ./as-root --reuid 0 --regid 0 --clear-groups \
	sh -c 'golock break --store local://$PWD/other root & until grep -q "cannot be signalled" log; do sleep 0.5; done'
# There is no room for a socket file, and an abstract socket proves nothing in this namespace.
each unshare --mount --propagation private sh -c 'mount -t tmpfs none /run && mkdir -m 1777 /run/golock && mount -o remount,ro /run &&
	exec setpriv --reuid 65534 --regid 65534 --clear-groups unshare --map-user 65534 $run --store flock://$PWD/other/file --name x -- true'
wait
until grep -q '"gone"' log; do sleep 0.5; done
`

// documentedEvents reads the events and their keys from the tables of docs/reference.md.
func documentedEvents(t *testing.T) map[string][]string {
	t.Helper()
	root, err := testkit.Root()
	testkit.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs/reference.md"))
	testkit.Must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Log events\n")
	section, _, _ = strings.Cut(section, "\n## ")
	events := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*)\\|").FindAllStringSubmatch(section, -1) {
		events[row[1]] = []string{}
		for _, key := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1) {
			events[row[1]] = append(events[row[1]], key[1])
		}
	}
	if len(events) < 30 {
		t.Fatalf("only %d events are documented", len(events))
	}
	return events
}

// Each event of docs/reference.md is logged by some run, with each of its keys, and these runs log no
// other event and no other key.
func TestEveryEventIsLogged(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	s := testkit.New(t, "")
	unsteady, stubborn, messy := redistest.NewProxy(t, redistest.Shared(t)), redistest.NewProxy(t, redistest.Shared(t)), redistest.NewProxy(t, redistest.Shared(t))
	var renewals, releases atomic.Int64
	unsteady.Judge(func(mode string) redistest.Verdict {
		if mode == "renew" && renewals.Add(1) == 1 || mode == "release" {
			return redistest.Lose
		}
		return redistest.Pass
	})
	stubborn.Judge(func(mode string) redistest.Verdict {
		if mode == "evict" {
			return redistest.Lose
		}
		return redistest.Pass
	})
	messy.Judge(func(mode string) redistest.Verdict {
		if mode == "release" {
			releases.Add(1)
		} else if mode == "" && releases.Load() > 1 {
			return redistest.Lose
		}
		return redistest.Pass
	})
	far := server.NewFarProxy(t, redistest.Shared(t).Addr(), server.Way{Delay: 300 * time.Millisecond})
	for _, dir := range []string{"mkdir", "mkdir-2"} {
		testkit.Must(t, os.Mkdir(s.Path(dir), 0o700))
	}
	holder := s.Hold("job")
	waiter := s.Job("-v", "--log-format", "json", "--", "true").Sh("exec 2>>log").OnTerminal(80, 24)
	s.Eventually("it waits", func() bool { return strings.Contains(s.Read("log"), `"msg":"waiting"`) })
	waiter.Signal(syscall.SIGTSTP)
	s.Eventually("it has left the queue", func() bool { return strings.Contains(s.Read("log"), "left the queue") })
	holder.Finish()
	s.Exec("sh", "-c", runsOfEvents).Setenv("local="+s.Store, "mkdir=mkdir://"+s.Path("mkdir"), "unsteady="+unsteady.URL(),
		"stubborn="+stubborn.URL(), "messy="+messy.URL(), "far=redis://"+far.Addr()+"?quarantine=0").Run().Expect(t, 0)

	documented, logged := documentedEvents(t), loggedEvents(t, s.Read("log"))
	for event, keys := range documented {
		if logged[event] == nil {
			t.Errorf("no run has logged %q", event)
			continue
		}
		for _, key := range keys {
			if !logged[event][key] {
				t.Errorf("no run has logged %q with %s: only with %q", event, key, slices.Sorted(maps.Keys(logged[event])))
			}
		}
	}
	for event, keys := range logged {
		if strings.HasSuffix(event, "so no user's configuration file counts") {
			continue // a sentence about the settings of the test's user, who has no home directory
		}
		want, ok := documented[event]
		if !ok {
			t.Errorf("docs/reference.md does not know %q, with %q", event, slices.Sorted(maps.Keys(keys)))
			continue
		}
		for key := range keys {
			if key != "name" && key != "id" && !slices.Contains(want, key) {
				t.Errorf("docs/reference.md does not know the key %s of %q", key, event)
			}
		}
	}
}

// loggedEvents gives the events of a log, each with the keys that it ever had. Messages of level error are
// no events.
func loggedEvents(t *testing.T, log string) map[string]map[string]bool {
	t.Helper()
	events := map[string]map[string]bool{}
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "{") {
			continue // a shell says that a process has ended by a signal
		}
		var values map[string]any
		if err := json.Unmarshal([]byte(line), &values); err != nil {
			t.Errorf("%v: %q", err, line)
			continue
		}
		event, _ := values["msg"].(string)
		if values["level"] == "error" {
			continue
		}
		if strings.HasPrefix(event, "ignored: ") {
			event = "ignored: …"
		}
		if events[event] == nil {
			events[event] = map[string]bool{}
		}
		for key := range values {
			if key != "time" && key != "level" && key != "msg" {
				events[event][key] = true
			}
		}
	}
	return events
}
