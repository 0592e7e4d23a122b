package runner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// command is what is to be executed, made ready as far as possible before the
// slot is there.
type command struct {
	argv    []string
	env     []string
	held    string // IDs of the enclosing runs
	path    string // the file, if it has been found
	inherit []int  // descriptors for the command beside those it would get anyway
}

// The variables that a run adds to the command's environment.
const (
	envID    = "GOLOCK_ID"
	envSlot  = "GOLOCK_SLOT"
	envSlots = "GOLOCK_SLOTS"
	envFence = "GOLOCK_FENCE"
	envName  = "GOLOCK_LOCK_NAME"
	envStore = "GOLOCK_LOCK_STORE"
	// EnvHeld lists the IDs of the enclosing runs, outermost first, separated
	// by commas.
	EnvHeld = "GOLOCK_HELD"
)

// prepare does what does not need the slot.
func prepare(argv, env []string, r locks.Request, store string) *command {
	c := &command{argv: argv, env: make([]string, 0, len(env)+7)}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case EnvHeld:
			c.held = value
		case envID, envSlot, envSlots, envFence, envName, envStore:
		default:
			c.env = append(c.env, e)
		}
	}
	if c.held != "" {
		c.held += ","
	}
	c.env = append(c.env, envName+"="+r.Name, envStore+"="+store)
	c.path, _ = find(argv[0])
	return c
}

// grant adds what the store gave.
func (c *command) grant(g locks.Grant) {
	id := g.Ref.String()
	c.env = append(c.env, envID+"="+id, EnvHeld+"="+c.held+id)
	if len(g.Slots) > 0 { // who shares a plain lock file has none
		c.env = append(c.env, envSlot+"="+strconv.Itoa(g.Slots[0]), envSlots+"="+joinInts(g.Slots))
	}
	if g.Fence != 0 {
		c.env = append(c.env, envFence+"="+strconv.FormatInt(g.Fence, 10))
	}
}

func joinInts(list []int) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// spawn starts the command.
func (c *command) spawn(sys *syscall.SysProcAttr) (pid int, err error) {
	attr := &syscall.ProcAttr{Env: c.env, Files: []uintptr{0, 1, 2}, Sys: sys}
	c.setCloseOnExec(0)
	defer c.setCloseOnExec(unix.FD_CLOEXEC)
	err = c.try(func(path string, argv []string) error {
		pid, err = syscall.ForkExec(path, argv, attr)
		return err
	})
	return pid, err
}

// exec replaces this process by the command. It returns only if that fails.
func (c *command) exec() error {
	c.setCloseOnExec(0)
	return c.try(func(path string, argv []string) error { return syscall.Exec(path, argv, c.env) })
}

// setCloseOnExec sets or clears the flag on what the command is to inherit. No
// other process is started meanwhile.
func (c *command) setCloseOnExec(flag int) {
	for _, fd := range c.inherit {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag)
	}
}

// try executes the command the way execvp(3) does: a file that is no program
// is given to the shell. A file that was there before the wait and has gone is
// looked for once more.
func (c *command) try(execute func(path string, argv []string) error) error {
	err := error(unix.ENOENT)
	if c.path != "" {
		err = execute(c.path, c.argv)
	}
	if err == unix.ENOENT || err == unix.EACCES {
		path, findErr := find(c.argv[0])
		switch {
		case findErr != nil:
			err = findErr
		case path != c.path:
			c.path = path
			err = execute(path, c.argv)
		}
	}
	if err == unix.ENOEXEC {
		err = execute("/bin/sh", append([]string{"/bin/sh", c.path}, c.argv[1:]...))
	}
	if err != nil {
		return c.problem(err)
	}
	return nil
}

func (c *command) problem(err error) error {
	return fmt.Errorf("cannot execute %q: %w", c.argv[0], err)
}

// find looks a command up along PATH as execvp(3) does: a name with a slash is
// a path; an unset PATH means /bin:/usr/bin, and an empty word in it the
// working directory. A file that may not be executed does not end the search,
// but is what the search failed by if nothing better comes.
func find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if name == "" {
		return "", unix.ENOENT
	}
	path, set := os.LookupEnv("PATH")
	if !set {
		path = "/bin:/usr/bin"
	}
	failed := unix.ENOENT
	for _, dir := range strings.Split(path, ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		var st unix.Stat_t
		if err := unix.Stat(file, &st); err != nil {
			if err == unix.EACCES {
				failed = unix.EACCES
			}
			continue
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS) != nil {
			failed = unix.EACCES
			continue
		}
		return file, nil
	}
	return "", failed
}

// Enclosing reads the IDs of the runs around this process from GOLOCK_HELD.
// Words that are no IDs are passed over: the variable is anybody's to set.
func Enclosing(held string) []locks.Ref {
	var refs []locks.Ref
	for _, word := range splitList(held) {
		if ref, err := locks.ParseRef(word); err == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}
