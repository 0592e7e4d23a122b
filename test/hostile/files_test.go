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

// This file pins that golock, root's above all, writes nowhere where another
// user leads it, believes no settings that another user could have written, and
// is held up by nothing that is no file.

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A lock file is not made, and no lock taken, where somebody else's link leads.
func TestLinksToLockFiles(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	for _, scheme := range []string{"flock", "fcntl", "bind"} {
		dir := testkit.Place(t, 0o777)
		link, target, there := dir+"/job.lock", dir+"/target", dir+"/there"
		testkit.Must(t, os.WriteFile(there, nil, 0o666))
		for _, to := range []string{target, there, "/dev/null", dir} {
			for _, uid := range []int{attacker, 0} {
				testkit.Must(t, os.Symlink(to, link))
				testkit.Must(t, os.Lchown(link, uid, uid))
				r := as(s, victim, "run", "--store", scheme+"://"+link, "--", "true")
				foreign := uid == attacker || to == "/dev/null" || scheme == "bind" || (scheme == "fcntl" && to == dir)
				switch {
				case foreign && (r.Code != 69 || exists(target)):
					t.Errorf("%s, link of user %d to %s: exit code %d: %s", scheme, uid, to, r.Code, r.Stderr)
				case !foreign && to != there && r.Code != 0:
					t.Errorf("%s, link of user %d to %s: exit code %d: %s", scheme, uid, to, r.Code, r.Stderr)
				}
				testkit.Must(t, os.Remove(link))
				_ = os.Remove(target)
			}
		}
	}
}

// In a directory of lease files everybody who may write is trusted. Still
// nothing that is put there makes golock hang, follow a link out of it, or
// remove what it has not made.
func TestForeignThingsAmongLeaseFiles(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	dir := testkit.Place(t, 0o777)
	store := "mkdir://" + dir
	precious := testkit.Place(t, 0o700)
	testkit.Must(t, os.WriteFile(precious+"/file", []byte("precious"), 0o600))

	// A holder that was killed, whose record has become a link; names that only
	// look like what golock has begun.
	h := hold(s, attacker, "--store", store, "--name", "killed", "--ttl", "1s", "--on-lost", "warn")
	h.Signal(unix.SIGKILL)
	h.In.Close() // ends the command, too
	h.Wait()
	record := onlyRecord(t, dir)
	name := filepath.Dir(filepath.Dir(record))
	text, err := os.ReadFile(record)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(precious+"/file", text, 0o600))
	testkit.Must(t, os.Remove(record))
	testkit.Must(t, os.Symlink(precious+"/file", record))
	kept := []string{
		dir + "/new.customers-of-the-year-2026-final", dir + "/new." + strings.Repeat("x", 65), dir + "/notes.used",
		name + "/v0", name + "/v-1", name + "/v999999999999999999999999", name + "/t", name + "/join.x", name + "/data/notes",
	}
	for _, path := range kept {
		testkit.Must(t, os.MkdirAll(path+"/deep", 0o777))
	}
	for i := range 3000 {
		testkit.Must(t, os.WriteFile(fmt.Sprintf("%s/foreign.%d", name, i), nil, 0o666))
	}
	judge(t, "clean", as(s, 0, "clean", "--store", store))
	says(t, "run", as(s, 0, "run", "--store", store, "--name", "killed", "-w", "5", "--", "true"), 0)
	if now, err := os.ReadFile(precious + "/file"); err != nil || string(now) != string(text) {
		t.Errorf("what a link led to is %q, %v", now, err)
	}
	for _, path := range kept {
		if !exists(path + "/deep") {
			t.Errorf("%s was removed", path)
		}
	}

	// A record that is a FIFO which somebody keeps open gives no sign of life.
	testkit.Must(t, os.RemoveAll(name+"/data/notes"))
	h = hold(s, attacker, "--store", store, "--name", "x", "--on-lost", "warn")
	record = onlyRecord(t, dir)
	testkit.Must(t, os.Remove(record))
	testkit.Must(t, unix.Mkfifo(record, 0o666))
	fifo, err := unix.Open(record, unix.O_RDWR|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fifo)
	for _, args := range [][]string{{"ls", "x"}, {"run", "--name", "x", "-n", "--", "true"}} {
		r := as(s, victim, append([]string{args[0], "--store", store}, args[1:]...)...)
		judge(t, fmt.Sprint(args), r)
		if want := map[string]int{"ls": 0, "run": 75}[args[0]]; r.Code != want {
			t.Errorf("%v: exit code %d after %v: %s", args, r.Code, r.Took, r.Stderr)
		}
	}

	// A version that is one, or a link to somewhere else, is not what golock has made.
	name = filepath.Dir(filepath.Dir(record))
	for what, spoil := range map[string]func(path string) error{
		"a FIFO": func(path string) error { return unix.Mkfifo(path, 0o666) },
		"a link": func(path string) error { return os.Symlink(precious+"/file", path) },
		"large":  func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o666), os.Truncate(path, 1<<40)) },
	} {
		version := name + "/v4000000000000000000"
		testkit.Must(t, spoil(version))
		for _, args := range [][]string{{"ls"}, {"break", "--name", "x"}, {"run", "--name", "x", "-n", "--", "true"}, {"clean"}} {
			r := as(s, victim, append([]string{args[0], "--store", store}, args[1:]...)...)
			judge(t, fmt.Sprint(what, args), r)
			if r.Code != 69 || !strings.Contains(r.Stderr, "damaged") {
				t.Errorf("%s: %v: exit code %d after %v: %s", what, args, r.Code, r.Took, r.Stderr)
			}
		}
		testkit.Must(t, os.Remove(version))
	}
	judge(t, "ls", as(s, 0, "ls", "--store", store))
	h.In.Close()
	h.Wait() // it writes there as long as it lives
}

// A request beside the versions, which the next golock lets into the queue, counts only if
// the golock whose record has its name can have written it.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	dir := testkit.Place(t, 0o777)
	store := "mkdir://" + dir
	h := hold(s, victim, "--store", store, "--name", "x", "--ttl", "1h")
	record := onlyRecord(t, dir)
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
		next := command(s, victim, "run", "-v", "--store", store, "--name", "x", "--", "true").Begin()
		next.Says(" waiting")
		next.Signal(unix.SIGTERM)
		next.Expects(143)
		r := as(s, victim, "ls", "--store", store, "--json")
		waits := strings.Contains(r.Stdout, `"state": "waiting"`)
		if judge(t, c.what, r); waits != (c.what == "") {
			t.Errorf("%s: waits %v: %s", c.what, waits, r.Stdout)
		}
	}
	h.In.Close()
	h.Wait() // it writes there as long as it lives
}

// onlyRecord is the file of the only entry in a directory of lease files.
func onlyRecord(t *testing.T, dir string) string {
	t.Helper()
	records, err := filepath.Glob(dir + "/*/data/*-*")
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	return records[0]
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
	if exists(dir + "/OWNED") {
		t.Error("one has started what it was told to")
	}
}
