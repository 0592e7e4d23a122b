//go:build integration

package campaign_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// This file pins what the judge builds on (testdata/member.c): however a command ends,
// its byte is free before whoever waits for golock's lock gets it, and not before the
// command can execute nothing any more.

func TestNextSeesNobody(t *testing.T) {
	for _, scheme := range []string{"local", "flock", "fcntl", "bind"} {
		for _, flag := range []string{"-v", "-F"} {
			for _, golock := range []string{"lives", "is killed"} {
				for _, command := range []string{"ends", "is killed"} {
					if flag == "-F" && golock == "is killed" {
						continue // it is the command
					}
					t.Run(fmt.Sprintf("%s %s, golock %s, command %s", scheme, flag, golock, command), func(t *testing.T) {
						for range 3 {
							seesNobody(t, scheme, flag, golock == "is killed", command == "is killed")
						}
					})
				}
			}
		}
	}
}

func seesNobody(t *testing.T, scheme, flag string, killGolock, killCommand bool) {
	dir := testkit.Place(t, 0o700)
	s, lives := testkit.New(t, scheme+"://"+filepath.Join(dir, "x")), filepath.Join(dir, "lives")
	rec := newRecorder(t, filepath.Join(dir, "recorder"))
	defer rec.close()
	golock := func(token int, flag string) *testkit.Process {
		return s.Job(flag, "--", member, rec.socket, lives, strconv.Itoa(token), "60000000", "0").Begin()
	}
	command := func(token int) (l *life) {
		s.Eventually("the command begins", func() bool {
			list := rec.running()
			if len(list) == 1 {
				l = list[0]
			}
			return len(list) == 1 && l.token == token
		})
		return l
	}
	first := golock(0, flag)
	c := command(0)
	next := golock(1, "-v")
	next.Says("waiting")
	if killGolock {
		s.Kill(first.PID)
	}
	if killCommand {
		testkit.Must(t, c.process.Kill())
	} else {
		testkit.Must(t, c.conn.CloseWrite())
	}
	for len(living(lives, 0)) > 0 { // without a pause: it must be seen as soon as it is free
	}
	if !exiting(c.pid) {
		t.Error("its byte is free, and it still runs")
	}
	l := command(1)
	if len(l.saw) > 0 {
		t.Errorf("the next one sees %v", l.saw)
	}
	testkit.Must(t, l.conn.CloseWrite())
	next.Wait()
	first.Wait()
}

// exiting reports whether a process executes nothing any more (PF_EXITING, proc(5)).
func exiting(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	field := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	flags, _ := strconv.Atoi(field[6])
	return flags&4 != 0
}
