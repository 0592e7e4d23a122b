//go:build integration

package campaign_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins what the judge builds on (testdata/member.c): however a command ends,
// its byte is free before whoever waits for golock's lock gets it, and not before the
// command can execute nothing any more.

// held is a golock with a command that lives until it is ended.
type held struct {
	store, lives string
	rec          *recorder
	golock       *exec.Cmd
	command      *life
}

// ends are the ways in which a command can end.
var ends = []struct {
	name string
	flag string
	end  func(h *held)
}{
	{"exit", "-v", func(h *held) { h.rec.end(h.command) }},
	{"KILL", "-v", func(h *held) { h.rec.signal(h.command, unix.SIGKILL) }},
	{"exit without golock", "-v", func(h *held) {
		_ = h.golock.Process.Kill()
		_ = h.golock.Wait()
		h.rec.end(h.command)
	}},
	{"KILL without golock", "-v", func(h *held) {
		_ = h.golock.Process.Kill()
		_ = h.golock.Wait()
		h.rec.signal(h.command, unix.SIGKILL)
	}},
	{"exit after execve", "-F", func(h *held) { h.rec.end(h.command) }},
	{"KILL after execve", "-F", func(h *held) { h.rec.signal(h.command, unix.SIGKILL) }},
}

// soonTrue waits for something that happens soon.
func soonTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (h *held) start(t *testing.T, token int, flag string) *exec.Cmd {
	t.Helper()
	c := exec.Command(golock, "run", "--store", h.store, "--name", "x", flag, "--",
		member, h.rec.socket, h.lives, strconv.Itoa(token), "60000000", "0")
	c.Env = environment()
	said, err := os.Create(h.lives + "-said")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func hold(t *testing.T, dir, store, flag string) *held {
	t.Helper()
	h := &held{store: store, lives: filepath.Join(dir, "lives")}
	var err error
	if h.rec, err = newRecorder(filepath.Join(dir, "recorder")); err != nil {
		t.Fatal(err)
	}
	h.golock = h.start(t, 0, flag)
	soonTrue(t, "the command begins", func() bool { return len(h.rec.running()) == 1 })
	h.command = h.rec.running()[0]
	return h
}

// blocked reports whether somebody waits in the kernel for a lock on a file.
func blocked(file string) bool {
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil {
		return false
	}
	text, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
			return true
		}
	}
	return false
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

func repeat(lock func() error) {
	for lock() == unix.EINTR {
	}
}

func TestByteIsFreeBeforeTheLock(t *testing.T) {
	for _, family := range []string{"flock", "fcntl"} {
		for _, e := range ends {
			for range 10 {
				dir, err := os.MkdirTemp("", "golock-campaign-")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				file := filepath.Join(dir, "lock")
				h := hold(t, dir, family+"://"+file, e.flag)
				left, early := make(chan []int), make(chan bool)
				go func() { // who is let in
					f, _ := os.OpenFile(file, os.O_RDWR, 0)
					defer f.Close()
					repeat(func() error {
						if family == "flock" {
							return unix.Flock(int(f.Fd()), unix.LOCK_EX)
						}
						return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
					})
					left <- living(h.lives, 0)
				}()
				go func() { // who waits for the byte
					f, _ := os.OpenFile(h.lives, os.O_RDWR, 0)
					defer f.Close()
					repeat(func() error {
						return unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
					})
					early <- !exiting(h.command.pid)
				}()
				soonTrue(t, "both wait", func() bool { return blocked(file) && blocked(h.lives) })
				e.end(h)
				if parts := <-left; len(parts) > 0 {
					t.Errorf("%s, %s: who was let in sees it alive", family, e.name)
				}
				if <-early {
					t.Errorf("%s, %s: its byte is free, and it still runs", family, e.name)
				}
				_ = h.golock.Wait()
				h.rec.close()
			}
		}
	}
}

// The same for locks that are no file's: the next golock's command sees nobody.
func TestNextSeesNobody(t *testing.T) {
	for _, scheme := range []string{"local", "bind"} {
		for _, e := range ends {
			dir, err := os.MkdirTemp("", "golock-campaign-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			h := hold(t, dir, scheme+"://"+filepath.Join(dir, "x"), e.flag)
			next := h.start(t, 1, "-v")
			soonTrue(t, "the next one waits", func() bool {
				said, _ := os.ReadFile(h.lives + "-said")
				return strings.Contains(string(said), "waiting")
			})
			e.end(h)
			soonTrue(t, "the next command begins", func() bool {
				list := h.rec.running()
				return len(list) == 1 && list[0].token == 1
			})
			if l := h.rec.running()[0]; len(l.saw) > 0 {
				t.Errorf("%s, %s: the next one sees %v", scheme, e.name, l.saw)
			}
			h.rec.end(h.rec.running()[0])
			_ = next.Wait()
			_ = h.golock.Wait()
			h.rec.close()
		}
	}
}
