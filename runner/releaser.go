package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
	"golock/internal/spawn"
	"golock/locks"
	"golock/signals"
)

// If golock is killed, its slot would stay taken for the rest of the TTL, although the watchdog kills the
// command at once. So the watchdog releases the slot: it is free as soon as the command is dead.
//
// A watchdog that executes the lean program has no client of a server. It executes the program of its dead
// golock in another role, the releaser, and hands it the URL and the IDs over a pipe: a URL may have a
// password, which must not be in arguments or variables.

// ReleaserName is the first argument that makes a golock process a releaser.
const ReleaserName = "golock-releaser"

// ErrNoReleaser says that something else than a watchdog has started the releaser.
var ErrNoReleaser = errors.New("a releaser is started by the watchdog of golock run only")

// golockLeases are the leases that the golock of a watchdog holds.
type golockLeases struct {
	url       string   // the URL of the store; empty until golock has sent it
	ids       []string // the leases' IDs, in the order in which golock took them
	endsHolds bool     // the slots were not used: their holds end too
	program   int      // a descriptor of golock's program; -1 if there is none
}

// release releases the leases in golock's place. open opens the store.
func (l golockLeases) release(relay *signals.Relay, open func(url string) (locks.Store, error)) error {
	if l.url == "" {
		return nil
	}
	var refs []locks.Ref
	for _, id := range l.ids {
		ref, err := locks.ParseRef(id)
		if err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	store, err := open(l.url)
	switch {
	case err != nil && l.program >= 0: // the lean program has no client for the store
		return l.becomeReleaser(relay)
	case err != nil:
		return err
	}
	var all []locks.Lease
	for _, ref := range refs {
		all = append(all, store.Abilities().Leases.Attach(ref))
	}
	err = newLeases(l.ids, all).Release(context.Background())
	if l.endsHolds {
		err = errors.Join(err, endHolds(store.Abilities().Queue, refs))
	}
	return err
}

// becomeReleaser executes golock's program as the releaser. It returns only if that fails.
func (l golockLeases) becomeReleaser(relay *signals.Relay) error {
	var pipe [2]int
	err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	ending := ""
	if l.endsHolds {
		ending = endsHoldsText
	}
	text := []byte(strings.Join(append([]string{l.url, ending}, l.ids...), "\x00"))
	if len(text) > pipeSize {
		return errors.New("the URL of the store is too long")
	}
	n, err := unix.Write(pipe[1], text)
	unix.Close(pipe[1])
	if err == nil && n < len(text) { // a user with too many pipes gets pipes of one page (pipe(7))
		err = io.ErrShortWrite
	}
	if err != nil {
		return os.NewSyscallError("write", err)
	}
	_, err = unix.FcntlInt(uintptr(pipe[0]), unix.F_SETFD, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	argv := []string{ReleaserName, strconv.Itoa(pipe[0])}
	program := "/proc/self/fd/" + strconv.Itoa(l.program)
	relay.AsCaller(func() { err = spawn.Exec(program, argv, entry.Environ()) })
	return err
}

// Releaser does the work of a releaser. open opens the store, which has leases. The releaser survives all signals
// that it can catch: a signal that kills a golock often goes to all processes of its job.
func Releaser(argv []string, open func(url string) (locks.Store, error)) error {
	leases, err := readLeases(argv)
	if err != nil {
		return err
	}
	relay, err := signals.NewRelay(signals.NoTerminal)
	if err != nil {
		return err
	}
	relay.Catch()
	relay.CatchIgnored()
	nameProcess(ReleaserName)
	return leases.release(relay, open)
}

// readLeases reads the leases from the pipe whose descriptor is the second argument.
func readLeases(argv []string) (l golockLeases, err error) {
	if len(argv) != 2 {
		return l, ErrNoReleaser
	}
	pipe, err := strconv.Atoi(argv[1])
	if err != nil {
		return l, ErrNoReleaser
	}
	var stat unix.Stat_t
	err = unix.Fstat(pipe, &stat)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return l, ErrNoReleaser
	}
	_ = unix.SetNonblock(pipe, true)
	text := make([]byte, pipeSize)
	n, err := unix.Read(pipe, text)
	unix.Close(pipe)
	if err != nil {
		return l, ErrNoReleaser
	}
	words := strings.Split(string(text[:n]), "\x00")
	if len(words) < 3 {
		return l, ErrNoReleaser
	}
	return golockLeases{url: words[0], endsHolds: words[1] == endsHoldsText, ids: words[2:], program: -1}, nil
}

// endsHoldsText says in the pipe that the holds of the slots end.
const endsHoldsText = "ends holds"

// pipeSize is what a pipe takes in one write that does not wait (pipe(7)).
const pipeSize = 1 << 16

// nameProcess makes ps and top show what this process is. prctl(2) would name this thread, which need
// not be the first one of the process.
func nameProcess(name string) {
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(name))
	unix.Close(fd)
}
