package runner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/execvp"
	"golock/internal/procfs"
	"golock/internal/spawn"
	"golock/locks"
	"golock/runner/held"
)

// command is a program to execute. As much as possible is prepared before the slot is granted.
type command struct {
	argv    []string
	env     []string
	common  int    // the number of variables at the beginning of env that do not depend on the grant; a watchdog inherits only these
	held    string // the value of GOLOCK_HELD: the IDs of the enclosing runs, and after the grant also of this run
	inherit []int  // descriptors that the command inherits, beside those that are not close-on-exec
}

// The variables that a run adds to the command's environment.
const (
	envID    = "GOLOCK_ID"
	envSlot  = "GOLOCK_SLOT"
	envSlots = "GOLOCK_SLOTS"
	envFence = "GOLOCK_FENCE"
	envName  = "GOLOCK_LOCK_NAME"
	envStore = "GOLOCK_LOCK_STORE"
	EnvHeld  = "GOLOCK_HELD" // IDs of the enclosing runs, outermost first, separated by commas

	envUnlocked = "GOLOCK_UNLOCKED" // 1: the command has no slot (Run.Unavailable)
)

// IsOutput reports whether runs set this variable.
func IsOutput(variable string) bool {
	switch variable {
	case envID, envSlot, envSlots, envFence, envName, envStore, EnvHeld, envUnlocked:
		return true
	}
	return false
}

// prepareCommand prepares as much of a command as does not depend on the grant.
func prepareCommand(argv, env []string, r locks.Request, store string) *command {
	c := &command{argv: argv, env: make([]string, 0, len(env)+7)}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if name == EnvHeld {
			c.held = value
		}
		if !IsOutput(name) {
			c.env = append(c.env, e)
		}
	}
	c.env = append(c.env, envName+"="+r.Name, envStore+"="+store)
	c.common = len(c.env)
	return c
}

// addGrants adds variables that describe the grants. GOLOCK_HELD has the IDs of all names. Each other variable
// describes the last name. A run without a slot has a zero grant.
func (c *command) addGrants(grants []locks.Grant) {
	g := grants[len(grants)-1]
	if g.Ref == (locks.Ref{}) {
		c.env = append(c.env, envUnlocked+"=1")
	} else {
		c.env = append(c.env, envID+"="+g.Ref.String())
		for _, one := range grants {
			c.held = strings.TrimPrefix(c.held+","+one.Ref.String(), ",")
		}
	}
	if c.held != "" {
		c.env = append(c.env, EnvHeld+"="+c.held)
	}
	if len(g.Slots) > 0 { // a shared plain lock has no slots
		var slots []string
		for _, n := range g.Slots {
			slots = append(slots, strconv.Itoa(n))
		}
		c.env = append(c.env, envSlot+"="+slots[0], envSlots+"="+strings.Join(slots, ","))
	}
	if g.Fence != 0 {
		c.env = append(c.env, envFence+"="+strconv.FormatInt(g.Fence, 10))
	}
}

// spawn starts the command.
func (c *command) spawn(sys *syscall.SysProcAttr) (pid int, err error) {
	err = execvp.Do(c.argv, func(path string, argv []string) error {
		pid, err = c.fork(path, argv, sys)
		return err
	})
	return pid, c.explain(err)
}

// fork starts the program at path. It does not search PATH.
func (c *command) fork(path string, argv []string, sys *syscall.SysProcAttr) (pid int, err error) {
	c.setCloseOnExec(0)
	defer c.setCloseOnExec(unix.FD_CLOEXEC)
	return spawn.Fork(path, argv, c.env, sys)
}

// exec replaces this process by the command. It returns only if that fails.
func (c *command) exec() error {
	c.setCloseOnExec(0)
	return c.explain(execvp.Do(c.argv, func(path string, argv []string) error {
		return spawn.Exec(path, argv, c.env)
	}))
}

// setCloseOnExec sets the close-on-exec flag of the descriptors that the command inherits. A flag of 0
// clears it; golock starts no other process until it is set again.
func (c *command) setCloseOnExec(flag int) {
	for _, fd := range c.inherit {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag)
	}
}

// explain adds to an error which command could not be executed, and why. It returns nil for nil.
func (c *command) explain(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("cannot execute %q: %w", c.argv[0], err)
	explanation := execvp.Explain(c.argv[0], err)
	if explanation != "" {
		err = fmt.Errorf("%w: %s", err, explanation)
	}
	return err
}

// Enclosing reads the IDs of the runs of a lock around this process from GOLOCK_HELD. Words that are
// no IDs are skipped: anybody may set the variable.
func Enclosing(heldIDs string, lock locks.Key) []locks.Ref {
	var refs []locks.Ref
	for word := range strings.SplitSeq(heldIDs, ",") {
		if ref, err := locks.ParseRef(word); err == nil && ref.Key == lock {
			refs = append(refs, ref)
		}
	}
	return refs
}

// OfAncestors returns those of the enclosing runs whose golock is an ancestor of this process, or cannot be
// found. A job that a command has queued with at(1) has the command's GOLOCK_HELD too, but may wait for the
// command's run. OfAncestors finds the golock of a run by its status socket, which a run on the local store does
// not have: there the store checks the ancestors itself.
func OfAncestors(runs []locks.Ref, sockets func() (dir string, err error)) []locks.Ref {
	return slices.DeleteFunc(runs, func(run locks.Ref) bool {
		dir, _ := sockets()
		pid := held.Process(dir, run.String())
		if pid == 0 {
			return false
		}
		isAncestor, known := procfs.IsAncestor(pid)
		return known && !isAncestor
	})
}
