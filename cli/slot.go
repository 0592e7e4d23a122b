package cli

import (
	"fmt"
	"math"
	"os"
	"time"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/runner"
)

// leastTTL is the shortest lease time.
const leastTTL = time.Second

// readSlot reads which slot is wanted, for run.Argv. It fills run and gives the
// exit code for a conflict.
func readSlot(v *config.Values, run *runner.Run, out *term.Printer) (conflictCode int, err error) {
	address, err := readAddress(v)
	if err != nil {
		return 0, err
	}
	if run.Store, err = address.open(v); err != nil {
		return 0, err
	}
	if run.Address = address.url; address.exposed != "" {
		out.Warn(address.exposed + " has the store's password, and other users can read it")
	}
	networked, err := v.Bool("require-networked")
	switch {
	case err != nil:
		return 0, err
	case networked && locks.KindOf(run.Store) != locks.LeaseQueue:
		return 0, v.Errorf("require-networked", "the store %s excludes on one machine only", run.Store.URL())
	}
	if run.Jitter, err = v.Duration("jitter"); err != nil {
		return 0, err
	}
	for _, read := range []func(*config.Values, *runner.Run, *term.Printer) error{readName, readClaim, readWait, readQueue} {
		if err := read(v, run, out); err != nil {
			return 0, err
		}
	}
	return v.Int("conflict-exit-code", 0, 255)
}

// readName reads the lock's name. On a plain store the URL is the lock: its key
// is the same whatever the name, and without a name the lock is called by its URL.
func readName(v *config.Values, run *runner.Run, _ *term.Printer) error {
	name := v.Text("name")
	_, given := v.Given("name")
	plain := locks.KindOf(run.Store) == locks.PlainLock
	if !given && !plain {
		return usageError{errMissingName}
	}
	if given {
		if err := locks.CheckName(name); err != nil {
			return v.Errorf("name", "%v", err)
		}
	} else {
		name = run.Store.URL()
	}
	ref, err := locks.NewRef(name)
	if err != nil {
		return err
	}
	if plain {
		ref.Key = locks.KeyOf(run.Store.URL())
	}
	run.Request = locks.Request{
		Ref: ref, Name: name, Command: run.Argv,
		Within: runner.Enclosing(os.Getenv(runner.EnvHeld)),
	}
	return nil
}

// readClaim reads how many slots are wanted, of how many.
func readClaim(v *config.Values, run *runner.Run, out *term.Printer) error {
	traits := run.Store.Traits()
	var shared, exclusive bool
	if err := readBools(v, "shared", &shared, "exclusive", &exclusive); err != nil {
		return err
	}
	if shared && traits.NoShared != "" {
		shared = false
		if _, err := isUsable(v, "shared", false, "not on this store: "+traits.NoShared, out); err != nil {
			return err
		}
	}
	most := traits.MaxUnits
	if most == 0 {
		most = math.MaxInt32
	}
	limit, err := readUnits(v, "max", most, traits.NoMax, out)
	if err != nil {
		return err
	}
	_, hasMax := v.Given("max")
	switch {
	case shared && exclusive:
		return v.Errorf("shared", "cannot be combined with --exclusive")
	case shared && hasMax:
		return v.Errorf("shared", "cannot be combined with --max: a shared lock with a limit is --max N alone")
	case exclusive && hasMax:
		return v.Errorf("exclusive", "cannot be combined with --max")
	case shared:
		limit = 0
	}
	weight, err := readUnits(v, "weight", most, traits.NoWeight, out)
	if err != nil {
		return err
	}
	if limit != 0 && weight > limit {
		if from, _ := v.Given("weight"); !from.FromFlag() && hasMax { // the max is what the user has just typed
			return v.Errorf("max", "%d has no room for the weight of %d (%v)", limit, weight, from)
		}
		return v.Errorf("weight", "%d can never fit into a max of %d", weight, limit)
	}
	run.Request.Claim = locks.Claim{Weight: weight, Max: limit}
	return nil
}

// readUnits reads a number of units. A store that lacks the setting has only 1.
func readUnits(v *config.Values, key string, most int, lack string, out *term.Printer) (int, error) {
	if lack == "" {
		n, err := v.Int(key, 1, most)
		if more, wrong := v.Int(key, 1, math.MaxInt32); err != nil && wrong == nil {
			err = v.Errorf(key, "%d is too many: the store counts to %d", more, most)
		}
		return n, err
	}
	n, err := v.Int(key, 1, math.MaxInt32)
	if err == nil && n > 1 {
		_, err = isUsable(v, key, false, "not on this store: "+lack, out)
	}
	return 1, err
}

// readWait reads how long to wait; -1: for ever.
func readWait(v *config.Values, run *runner.Run, _ *term.Printer) (err error) {
	noWait := false
	if err := readBools(v, "no-wait", &noWait); err != nil {
		return err
	}
	if run.Wait, err = v.Duration("wait"); err != nil {
		return err
	}
	switch _, given := v.Given("wait"); {
	case noWait && run.Wait > 0:
		return v.Errorf("no-wait", "cannot be combined with --wait")
	case !noWait && !given:
		run.Wait = -1
	}
	return nil
}

// readQueue reads what concerns the queue, and the hold.
func readQueue(v *config.Values, run *runner.Run, out *term.Printer) error {
	hasQueue := locks.KindOf(run.Store) != locks.PlainLock
	noQueue := "the store " + run.Store.URL() + " keeps no queue: the kernel decides who is next"
	for _, setting := range []struct {
		key  string
		can  bool
		lack string
		read func() error
	}{
		{"priority", hasQueue, noQueue, func() (err error) {
			run.Request.Claim.Priority, err = v.Int("priority", math.MinInt32, math.MaxInt32)
			return err
		}},
		{"max-queue", hasQueue, noQueue, func() error {
			most, err := v.Int("max-queue", 0, math.MaxInt32)
			run.Request.MaxQueue = &most
			return err
		}},
		{"replace", hasQueue, noQueue, func() error { return readReplace(v, run, out) }},
		{"hold", hasQueue, "the store " + run.Store.URL() + " cannot keep a slot without a process", func() (err error) {
			run.Request.Hold, err = v.Duration("hold")
			return err
		}},
	} {
		usable, err := isUsable(v, setting.key, setting.can, setting.lack, out)
		if err == nil && usable {
			err = setting.read()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readReplace reads whom a run replaces. That one needs time to end, so the run
// must be one that waits.
func readReplace(v *config.Values, run *runner.Run, out *term.Printer) error {
	replace := locks.Replacement(v.Text("replace"))
	if replace != locks.ReplaceWaiting && replace != locks.ReplaceRunning {
		return v.Errorf("replace", "%q is neither waiting nor running", string(replace))
	}
	if run.Wait != 0 {
		run.Request.Replace = replace
		return nil
	}
	source, _ := v.Given("replace")
	for _, key := range []string{"no-wait", "wait"} {
		if other, ok := v.Given(key); ok && source.FromFlag() && other.FromFlag() {
			return v.Errorf("replace", "cannot be combined with --%s: a run that is replaced needs time to end", key)
		}
	}
	out.Step("ignored: a run that does not wait replaces nobody", "setting", source.String())
	return nil
}

// readLease reads what concerns leases.
func readLease(v *config.Values, run *runner.Run, out *term.Printer) (err error) {
	if locks.KindOf(run.Store) != locks.LeaseQueue {
		for _, key := range []string{"ttl", "on-lost", "show-args"} {
			if _, err := isUsable(v, key, false, noLeases(run.Store), out); err != nil {
				return err
			}
		}
		return nil
	}
	if run.Request.TTL, err = readTTL(v, run.Store); err != nil {
		return err
	}
	switch policy := v.Text("on-lost"); policy {
	case "stop":
	case "warn":
		run.OnlyWarn = true
	default:
		return v.Errorf("on-lost", "%q is neither stop nor warn", policy)
	}
	showArgs := false
	if err := readBools(v, "show-args", &showArgs); err != nil {
		return err
	}
	if n := len(run.Argv) - 1; !showArgs && n > 0 { // arguments may be secret
		run.Request.Command = []string{run.Argv[0], fmt.Sprintf("+%d args", n)}
	}
	return nil
}

// readTTL reads the lease time; 0: the store has no leases.
func readTTL(v *config.Values, store locks.Store) (time.Duration, error) {
	if locks.KindOf(store) != locks.LeaseQueue {
		if source, ok := v.Given("ttl"); ok && source.FromFlag() {
			return 0, v.Errorf("ttl", "%s", noLeases(store))
		}
		return 0, nil
	}
	ttl, err := v.Duration("ttl")
	if err == nil && ttl < leastTTL {
		err = v.Errorf("ttl", "%v is too short: at least %v", ttl, leastTTL)
	}
	return ttl, err
}

func noLeases(store locks.Store) string {
	return "has no meaning on the store " + store.URL() + ": a slot there is free when its holder ends"
}

// isUsable reports whether a setting was given and the store can honour it. If
// not, a flag is a mistake; a setting from elsewhere is meant for other runs.
func isUsable(v *config.Values, key string, can bool, lack string, out *term.Printer) (bool, error) {
	source, given := v.Given(key)
	switch {
	case !given:
		return false, nil
	case can:
		return true, nil
	case source.FromFlag():
		return false, v.Errorf(key, "%s", lack)
	}
	out.Step("ignored: "+lack, "setting", source.String())
	return false, nil
}
