package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/runner"
)

// maxNames is the largest number of locks of a run. Each has its own entry, and on some stores a connection.
const maxNames = 16

// nameLock sorts the names of a run. All runs take their locks in the order of the bytes, so that no two of
// them wait for each other for ever.
func (c *runCommand) nameLock() error {
	names := c.Name.texts
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			return usageError{fmt.Errorf("--name: %q is named twice", locks.Printable(name, 80))}
		}
	}
	if len(names) > maxNames {
		return usageError{fmt.Errorf("--name: %d names are too many: a run holds at most %d locks", len(names), maxNames)}
	}
	return nil
}

// nameLock refuses several names: a script calls golock acquire once for each.
func (c *acquireCommand) nameLock() error {
	if len(c.Name.texts) > 1 {
		return usageError{errors.New("--name: golock acquire takes one lock; golock run holds several")}
	}
	return nil
}

// readNames reads the names of the locks. The last one becomes the name of run.Request.
func readNames(v *config.Values, run *runner.Run) {
	names := v.List("name")
	switch {
	case len(names) == 0:
		names = []string{nameOfStore(v, run.Store)}
	case len(names) > 1 && run.Store.IsPlain:
		v.Fail("name", "the store %s is one lock: it cannot hold several names", run.Store.URL())
	}
	for _, name := range names {
		if err := locks.CheckName(name); err != nil && len(v.List("name")) > 0 {
			v.Fail("name", "%v", err)
		}
	}
	last := names[len(names)-1]
	ref, err := locks.NewRef(last)
	if err != nil {
		v.Reject(err)
	}
	if run.Store.IsPlain {
		ref.Key = locks.KeyOf(run.Store.URL())
	}
	run.Request, run.Earlier = requestOf(run, last, ref), nil
	for i, name := range names[:len(names)-1] {
		r := requestOf(run, name, ref.Beside(locks.KeyOf(name)))
		r.Next = names[i+1]
		run.Earlier = append(run.Earlier, r)
	}
}

// nameOfStore returns the name of a lock that the user has not named. On a plain store that is the URL,
// which is the lock. Other stores need a name.
func nameOfStore(v *config.Values, store locks.KnownStore) string {
	if !store.IsPlain {
		v.Reject(errMissingName)
		return ""
	}
	return store.URL()
}

// requestOf returns a request that says which lock is wanted and who wants it.
func requestOf(run *runner.Run, name string, ref locks.Ref) locks.Request {
	r := locks.Request{Ref: ref, Name: name, User: run.User, Within: runner.Enclosing(os.Getenv(runner.EnvHeld), ref.Key)}
	if !run.Store.Can.InheritorsKeep {
		r.Within = runner.OfAncestors(r.Within, existingSocketDir)
	}
	return r
}

// readEarlier completes run.Earlier, the requests of the names before the last one. Each name has its own claim,
// priority and TTL. Everything else is as in run.Request, which must be complete.
func readEarlier(v *config.Values, run *runner.Run, out *term.Printer) {
	for i, earlier := range run.Earlier {
		values := v.Earlier[i]
		scratch := *run // the functions below write into the request of a run
		readClaim(values, &scratch, out)
		readPriority(values, &scratch, out)
		scratch.Request.TTL = readTTL(values, run.Store, out)
		if err := values.Err(); err != nil {
			v.Reject(err)
		}
		r := scratch.Request
		r.Ref, r.Name, r.Next, r.Within = earlier.Ref, earlier.Name, earlier.Next, earlier.Within
		r.HoldsLater = r.Hold > 0
		run.Earlier[i] = r
	}
}
