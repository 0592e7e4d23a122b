//go:build integration

package hostile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// golock, above all as root, does not write where another user leads it, and does not hang on a file
// that is a FIFO or a link.

// A lock file is not made, and no lock taken, where somebody else's link leads. (bind follows none.)
func TestLinksToLockFiles(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for _, scheme := range []string{"flock", "fcntl"} {
		dir := testkit.Place(t, 0o777)
		link, target, there := dir+"/job.lock", dir+"/target", dir+"/there"
		testkit.Must(t, os.WriteFile(there, nil, 0o666))
		for _, to := range []string{target, there} {
			for _, uid := range []int{attacker, 0} {
				testkit.Must(t, os.Symlink(to, link))
				testkit.Must(t, os.Lchown(link, uid, uid))
				r := as(s, victim, "run", "--store", scheme+"://"+link, "--", "true")
				switch {
				case uid == attacker && (r.Code != 69 || testkit.Exists(target) || !strings.Contains(r.Stderr, "symbolic link of user 20001")), uid == 0 && to == target && r.Code != 0:
					t.Errorf("%s, link of user %d to %s: exit code %d: %s", scheme, uid, to, r.Code, r.Stderr)
				}
				testkit.Must(t, os.Remove(link))
				_ = os.Remove(target)
			}
		}
	}
}

// A request beside the versions, which the next golock lets into the queue, counts only if
// the golock whose record has its name can have written it.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	dir := testkit.Place(t, 0o777)
	s := testkit.OnStore(t, "mkdir://"+dir)
	h := hold(s, victim, "--name", "x", "--ttl", "1h")
	record := testkit.OnlyFile(t, dir+"/*/data/*-*")
	text, err := os.ReadFile(record)
	testkit.Must(t, err)
	place := filepath.Dir(filepath.Dir(record))
	const right = `W 0 0 1 1 0 0 3600000000000 0 0 0 s r ""`
	for i, c := range []struct {
		what, entry string
		uid         int
	}{
		{"another user's", right, attacker},
		{"a holder", `H 0 0 1 1 0 7 3600000000000 0 0 0 s0 r ""`, victim},
		{"one with a ticket", `W 0 1 1 1 0 0 3600000000000 0 0 0 s r ""`, victim},
		{"heavier than its max", `W 0 0 2 1 0 0 3600000000000 0 0 0 s r ""`, victim},
		{"one that replaces", `W 0 0 1 1 0 0 3600000000000 0 0 0 s rrunning ""`, victim},
		{"an evicted one", `W 0 0 1 1 0 0 3600000000000 0 0 0 s r "by me"`, victim},
		{"a huge one", `W 0 0 1 1 0 0 3600000000000 0 0 0 s r "` + strings.Repeat("x", 1<<20) + `"`, victim},
		{"another's ID", right, victim},
		{"", right, victim}, // which shows that the others could be let in
	} {
		id := fmt.Sprintf("%032x", i+1)
		own, request := filepath.Dir(record)+"/"+id+"-0", place+"/join."+id+"-0"
		if c.what == "another's ID" {
			id = fmt.Sprintf("%032x", 1000)
		}
		testkit.Must(t, os.WriteFile(own, text, 0o666))
		testkit.Must(t, os.WriteFile(request, []byte("1 0 1\n"+id+" "+c.entry+"\n"), 0o666))
		testkit.Must(t, errors.Join(os.Chown(own, victim, victim), os.Chown(request, c.uid, c.uid)))
		next := command(s, victim, "run", "-v", "--name", "x", "--", "true").Begin()
		next.Says(" waiting")
		next.Signal(unix.SIGTERM)
		next.DiesOf(unix.SIGTERM)
		r := as(s, victim, "ls", "--json")
		waits := strings.Contains(r.Stdout, `"state": "waiting"`)
		if judge(t, c.what, r); waits != (c.what == "") {
			t.Errorf("%s: waits %v: %s", c.what, waits, r.Stdout)
		}
	}
	h.In.Close()
	h.Wait() // it writes there as long as it lives
}

// What golock starts itself serves nobody who calls it by hand.
func TestHiddenCommandsByHand(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	scripts := []string{
		`exec -a golock-watchdog "$0"`,
		`exec -a golock-watchdog "$0" 0 0 touch OWNED`,
		`exec -a golock-watchdog "$0" 9 0 touch OWNED 9</etc/passwd`,
		`exec -a golock-watchdog "$0" x -1 touch OWNED`,
		`exec -a golock-watchdog "$0" 99999999999 0 touch OWNED`,
		`exec -a golock-releaser "$0"`,
		`exec -a golock-releaser "$0" x`,
		`exec -a golock-releaser "$0" 9`,
		`exec -a golock-releaser "$0" 9 9</etc/passwd`,
		`exec -a golock-releaser "$0" 9 9< <(echo redis://127.0.0.1; sleep 1)`,
		`exec -a golock-holder "$0" x for 1 3>&-`,
		`exec -a golock-holder "$0" x for 1 3</etc/passwd`,
		`exec "$0" golock-check-child`,
		`exec "$0" golock-check-child . x 1`,
		`exec "$0" golock-check-child /nowhere 1 1`,
		`exec "$0" golock-check-child . -1 -1`,
	}
	dir := testkit.Place(t, 0o777)
	var calls []*testkit.Command
	for _, script := range scripts {
		cmd := s.Exec("bash", "-c", script, testkit.Golock).As(attacker)
		cmd.Dir = dir
		calls = append(calls, cmd)
	}
	for i, r := range testkit.RunAll(calls) {
		judge(t, scripts[i], r)
		says(t, scripts[i], r, 64)
	}
	if testkit.Exists(dir + "/OWNED") {
		t.Error("one has started what it was told to")
	}
}
