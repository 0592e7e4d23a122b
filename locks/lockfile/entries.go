package lockfile

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/kernel"
)

// Entries implements locks.Store, whatever the name: there is one lock. Who
// holds it is what the kernel tells: the process that has it, not when that took
// it, and not even the process if it belongs to another user and the lock is of
// the fcntl family. Waiters come in the order in which the kernel lists them.
func (s *Store) Entries(_ context.Context, name string) iter.Seq2[locks.Entry, error] {
	return func(yield func(locks.Entry, error) bool) {
		if name == "" {
			name = s.URL()
		}
		var st unix.Stat_t
		switch err := unix.Stat(s.path, &st); err {
		case nil:
		case unix.ENOENT:
			return
		default:
			yield(locks.Entry{}, &Error{Op: "stat", Path: s.path, Err: err})
			return
		}
		holders, waiters := s.list(name, &st)
		for _, e := range append(holders, waiters...) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// held is a lock that a descriptor of a process carries.
type held struct {
	pid  int
	line lockLine
}

// list puts together what two places tell. The descriptors of processes show
// exactly who has a lock, but only to those who may look; the kernel's list
// shows all locks, by a process number that may be of the past, or by none.
func (s *Store) list(name string, st *unix.Stat_t) (holders, waiters []locks.Entry) {
	var seen []held
	kernel.Processes(func(pid int, dir string) bool {
		_, _ = s.carries(dir, st, func(line lockLine) {
			seen = append(seen, held{pid, line})
		})
		return true
	})
	file := fileName(st)
	var pids, owners, shown []int
	for _, h := range seen {
		file = h.line.file // on overlayfs and btrfs the device of stat(2) is another
		pids, owners = append(pids, h.pid), append(owners, h.line.owner)
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	for _, pid := range kernel.Eldest(pids) {
		line := seen[slices.IndexFunc(seen, func(h held) bool { return h.pid == pid })].line
		owner := line.owner
		if len(holders) > 0 && (!line.shared || (owner > 0 && slices.Contains(shown, owner))) {
			continue // the same lock, in another process
		}
		shown = append(shown, owner)
		e := s.entry(name, locks.Holding, line)
		if owner > 0 && !slices.Contains(pids, owner) {
			if e.Orphaned = !kernel.Hidden(owner); !e.Orphaned {
				pid = owner // another user's, from which the one that is seen has it
			}
		}
		kernel.Describe(&e, pid)
		holders = append(holders, e)
	}
	text, _ := os.ReadFile("/proc/locks")
	unknown := -len(holders) // locks of the list that no process was seen to have
	own := int(s.sleepers.Load())
	for _, line := range s.lines(string(text), file) {
		switch {
		case line.waits && own > 0 && (line.owner == os.Getpid() || line.owner < 0):
			own-- // who asks is not waiting any more
		case line.waits:
			e := s.entry(name, locks.Waiting, line)
			e.Position = len(waiters) + 1
			kernel.Describe(&e, max(line.owner, 0))
			waiters = append(waiters, e)
		case line.owner > 0 && slices.Contains(owners, line.owner):
			unknown++
		case line.owner > 0:
			e := s.entry(name, locks.Holding, line)
			e.Orphaned = !kernel.Describe(&e, line.owner)
			holders = append(holders, e)
		default:
			if unknown++; unknown > 0 {
				e := s.entry(name, locks.Holding, line)
				e.UID = -1
				e.Host, _ = os.Hostname()
				holders = append(holders, e)
			}
		}
	}
	return holders, waiters
}

func (s *Store) entry(name string, state locks.State, line lockLine) locks.Entry {
	e := locks.Entry{Name: name, State: state, Claim: locks.Claim{Weight: 1, Max: 1}}
	if line.shared {
		e.Claim.Max = 0
	} else if state == locks.Holding {
		e.Slots = []int{0}
	}
	return e
}

// carries calls f with each lock of the file that a descriptor of a process
// carries, and reports whether there is one.
func (s *Store) carries(dir string, st *unix.Stat_t, f func(lockLine)) (yes bool, err error) {
	err = kernel.Descriptors(dir, func(number string) bool {
		if !kernel.Is(dir+"/fd/"+number, st) {
			return true
		}
		text, _ := os.ReadFile(dir + "/fdinfo/" + number)
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(line, "lock:")
			if !ok {
				continue
			}
			for _, l := range s.lines(rest, "") {
				yes = true
				f(l)
			}
		}
		return true
	})
	return yes, err
}

// lockLine is a line of /proc/locks or of a descriptor's fdinfo (proc(5)):
// "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF". Who waits has an arrow
// before the kind.
type lockLine struct {
	waits, shared bool
	owner         int    // who made the lock; 0: of another pid namespace, -1: the kernel keeps nobody
	file          string // MAJOR:MINOR:INODE
}

// lines picks out those of the family, and of the file if that is given.
func (s *Store) lines(text, file string) []lockLine {
	var found []lockLine
	for line := range strings.Lines(text) {
		field := strings.Fields(line)
		l := lockLine{}
		if len(field) > 1 && field[1] == "->" {
			l.waits = true
			field = slices.Delete(field, 1, 2)
		}
		if len(field) < 8 || !s.kind(field[1]) || (file != "" && field[5] != file) {
			continue
		}
		l.shared, l.file = field[3] == "READ", field[5]
		l.owner, _ = strconv.Atoi(field[4])
		found = append(found, l)
	}
	return found
}

func (s *Store) kind(word string) bool {
	if s.family == Flock {
		return word == "FLOCK"
	}
	return word == "OFDLCK" || word == "POSIX"
}

// fileName is what the kernel's list calls a file, on most file systems.
func fileName(st *unix.Stat_t) string {
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
}

// busy tells who holds the lock, as far as that takes no search.
func (s *Store) busy(name string) *locks.BusyError {
	busy := &locks.BusyError{Name: name}
	var st unix.Stat_t
	if unix.Stat(s.path, &st) != nil {
		return busy
	}
	text, _ := os.ReadFile("/proc/locks")
	for _, line := range s.lines(string(text), fileName(&st)) {
		e := s.entry(name, locks.Holding, line)
		switch {
		case line.waits:
			busy.Waiters++
		case line.owner > 0 && kernel.Describe(&e, line.owner):
			busy.Holders = append(busy.Holders, e)
		}
	}
	return busy
}

// enclosing finds the run around us that holds the lock. That GOLOCK_HELD names
// it is not enough: what a run has left behind names it too, when another one
// holds.
func (s *Store) enclosing(r locks.Request) *locks.Ref {
	for i := len(r.Within) - 1; i >= 0; i-- {
		if r.Within[i].Key != r.Ref.Key {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(s.path, &st) == nil && kernel.Around(func(dir string) (bool, error) {
			return s.carries(dir, &st, func(lockLine) {})
		}) {
			return &r.Within[i]
		}
		return nil
	}
	return nil
}
