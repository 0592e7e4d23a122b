package main

import (
	"math"

	"golock/config"
	"golock/locks"
	"golock/runner"
)

// queueing reads what concerns the queue, and the time that a slot outlasts its
// run. On a store that cannot do it, a flag is a mistake; from elsewhere it is
// for other runs.
func queueing(v *config.Values, run *runner.Run, out *printer) error {
	can := run.Store.Traits()
	r := &run.Request
	ordered := func(key string) (bool, error) {
		return usable(v, key, can.Queue, "the store "+run.Store.URL()+" keeps no queue: the kernel decides who is next", out)
	}
	if ok, err := ordered("priority"); err != nil {
		return err
	} else if ok {
		if r.Claim.Priority, err = v.Int("priority", 0, math.MinInt32, math.MaxInt32); err != nil {
			return err
		}
	}
	if ok, err := ordered("max-queue"); err != nil {
		return err
	} else if ok {
		most, err := v.Int("max-queue", 0, 0, math.MaxInt32)
		if err != nil {
			return err
		}
		r.MaxQueue = &most
	}
	if ok, err := ordered("replace"); err != nil {
		return err
	} else if ok {
		if err := replacing(v, run, out); err != nil {
			return err
		}
	}
	if ok, err := usable(v, "hold", can.Hold, "the store "+run.Store.URL()+" cannot keep a slot without a process", out); err != nil {
		return err
	} else if ok {
		if r.Hold, err = v.Duration("hold", 0); err != nil {
			return err
		}
	}
	return nil
}

// replacing reads whom a run puts out of its way. What it replaces needs time
// to end, so it has to be one that waits.
func replacing(v *config.Values, run *runner.Run, out *printer) error {
	replace := locks.Replacement(v.Text("replace", ""))
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
	out.step("ignored: a run that does not wait replaces nobody", "setting", source.String())
	return nil
}

// usable reports whether a setting was given and the store can honour it. If
// it cannot, that is an error of a flag; a setting from elsewhere is passed
// over.
func usable(v *config.Values, key string, can bool, why string, out *printer) (bool, error) {
	source, given := v.Given(key)
	switch {
	case !given:
		return false, nil
	case can:
		return true, nil
	case source.FromFlag():
		return false, v.Errorf(key, "%s", why)
	}
	out.step("ignored: "+why, "setting", source.String())
	return false, nil
}
