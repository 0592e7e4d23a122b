package cli

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"golock/cli/term"
	"golock/config"
	"golock/locks"
	"golock/runner"
)

// leastTTL is the shortest lease time.
const leastTTL = time.Second

// readSlot reads into run which slot is wanted and how it is kept. It returns the exit code for a
// conflict.
func readSlot(v *config.Values, run *runner.Run, out *term.Printer) (conflictCode int) {
	if v.Bool("require-networked") {
		if lack := lackOf(run.Store, "require-networked"); lack != "" {
			v.Fail("require-networked", "%s", lack)
		}
	}
	run.Jitter = v.Duration("jitter")
	if run.Request.Name == "" {
		readNames(v, run)
	}
	run.Request.Command = run.Argv
	run.Request.Note = readNote(v)
	readClaim(v, run, out)
	readWait(v, run)
	readQueue(v, run, out)
	readLease(v, run, out)
	readEarlier(v, run, out)
	return v.Int("conflict-exit-code", 0, 255)
}

// readNote reads why the run is there. CI systems fill the variable, so any text is accepted from it.
func readNote(v *config.Values) string {
	note := v.Text("note")
	if source, _ := v.Given("note"); source.FromVariable() {
		return locks.CleanNote(note)
	}
	if err := locks.CheckNote(note); err != nil {
		v.Fail("note", "%v", err)
	}
	return note
}

// readClaim reads the weight and the max. The max of --shared is 0, which stands for no max.
func readClaim(v *config.Values, run *runner.Run, out *term.Printer) {
	can := run.Store.Can
	if v.Bool("shared") && can.NoShared != "" {
		refuse(v, out, "not on this store: "+can.NoShared, "shared")
	}
	shared, exclusive := v.Bool("shared"), v.Bool("exclusive")
	most := cmp.Or(can.MaxUnits, math.MaxInt32) // a MaxUnits of 0 stands for no limit
	limit := readUnits(v, "max", most, can.NoMax, out)
	_, hasMax := v.Given("max")
	switch {
	case shared && exclusive:
		v.Reject(v.Conflict("shared", "exclusive", ""))
	case shared && hasMax:
		v.Reject(v.Conflict("shared", "max", ": a shared lock with a limit is --max N alone"))
	case exclusive && hasMax:
		v.Reject(v.Conflict("exclusive", "max", ""))
	case shared:
		limit = 0
	}
	weight := readUnits(v, "weight", most, can.NoWeight, out)
	if limit != 0 && weight > limit {
		if from, _ := v.Given("weight"); !from.FromFlag() && hasMax { // the user has just typed the max
			v.Fail("max", "%d has no room for the weight of %d (%v)", limit, weight, from)
		} else {
			v.Fail("weight", "%d can never fit into a max of %d", weight, limit)
		}
	}
	run.Request.Claim = locks.Claim{Weight: weight, Max: limit}
}

// readUnits reads a number of slots, from 1 to most. If lack is not empty, it says why the store has only 1.
func readUnits(v *config.Values, key string, most int, lack string, out *term.Printer) int {
	if lack != "" && v.Int(key, 1, math.MaxInt32) > 1 {
		refuse(v, out, "not on this store: "+lack, key)
	}
	if more, err := config.ParseInt(v.Text(key), 1, math.MaxInt32); err == nil && more > most {
		v.Fail(key, "%d is too many: the store counts to %d", more, most)
	}
	return v.Int(key, 1, most)
}

// readWait reads how long to wait. A run.WaitLimit of -1 has no limit.
func readWait(v *config.Values, run *runner.Run) {
	noWait := v.Bool("no-wait")
	run.WaitLimit = v.Duration("wait")
	_, isGiven := v.Given("wait")
	switch {
	case noWait && run.WaitLimit > 0:
		v.Reject(v.Conflict("no-wait", "wait", ""))
	case !noWait && !isGiven:
		run.WaitLimit = -1
	}
}

// readQueue reads what needs a store with a queue.
func readQueue(v *config.Values, run *runner.Run, out *term.Printer) {
	readPriority(v, run, out)
	refuseLacking(v, run.Store, out, "max-queue", "replace", "hold")
	if _, given := v.Given("max-queue"); given {
		run.Request.MaxQueue = new(v.Int("max-queue", 0, math.MaxInt32))
	}
	if _, given := v.Given("replace"); given {
		readReplace(v, run, out)
	}
	run.Request.Hold = v.Duration("hold")
}

// readPriority reads the priority of the run in the queue.
func readPriority(v *config.Values, run *runner.Run, out *term.Printer) {
	refuseLacking(v, run.Store, out, "priority")
	run.Request.Claim.Priority = v.Int("priority", math.MinInt32, math.MaxInt32)
}

// readReplace reads whom a run replaces. The replaced run needs time to end, so a run that replaces
// must wait.
func readReplace(v *config.Values, run *runner.Run, out *term.Printer) {
	replace := locks.Replacement(v.Choice("replace", string(locks.ReplaceWaiting), string(locks.ReplaceRunning)))
	if run.WaitLimit != 0 {
		run.Request.Replace = replace
		return
	}
	source, _ := v.Given("replace")
	for _, key := range []string{"no-wait", "wait"} {
		if other, ok := v.Given(key); ok && source.FromFlag() && other.FromFlag() {
			v.Fail("replace", "cannot be combined with --%s: a run that is replaced needs time to end", key)
		}
	}
	out.Step("ignored: a run that does not wait replaces nobody", "setting", source.String())
}

// readLease reads what only a store with leases needs, and whether it shows the arguments of the command.
func readLease(v *config.Values, run *runner.Run, out *term.Printer) {
	run.Request.TTL = readTTL(v, run.Store, out)
	run.OnlyWarn = v.Choice("on-lost", "stop", "warn") == "warn"
	n := len(run.Argv) - 1
	publishes := lackOf(run.Store, "show-args") == ""
	if publishes && !v.Bool("show-args") && n > 0 { // arguments may be secret
		run.Request.Command = []string{run.Argv[0], fmt.Sprintf("+%d args", n)}
	}
}

// readTTL reads the lease time. It refuses settings that only a store with leases knows.
func readTTL(v *config.Values, store locks.KnownStore, out *term.Printer) time.Duration {
	refuseLacking(v, store, out, "ttl", "on-lost", "show-args")
	ttl := v.Duration("ttl")
	if ttl < leastTTL {
		v.Fail("ttl", "%v is too short: at least %v", ttl, leastTTL)
	}
	if ttl > locks.MaxTTL {
		v.Fail("ttl", "%v is too long: at most %v", ttl, locks.MaxTTL)
	}
	return ttl
}

// lackOf returns why a setting has no meaning on a store, or "" if it has one.
func lackOf(store locks.KnownStore, key string) string {
	url := store.URL()
	switch key {
	case "priority", "max-queue", "replace":
		if store.IsPlain {
			return "the store " + url + " keeps no queue: the kernel decides who is next"
		}
	case "hold":
		if store.IsPlain {
			return "the store " + url + " cannot keep a slot without a process"
		}
	case "ttl", "on-lost", "show-args":
		if !store.IsNetworked {
			return "has no meaning on the store " + url + ": a slot there is free when its holder ends"
		}
	case "exec", "close":
		if store.IsNetworked {
			return "on the store " + url + " a command inherits no lock"
		}
	case "require-networked":
		if !store.IsNetworked {
			return "the store " + url + " limits only the runs of one machine"
		}
	case "for none":
		if !store.IsNetworked {
			return "on " + url + " a slot is held by a process"
		}
	}
	return ""
}

// refuseLacking refuses settings that have no meaning on the store.
func refuseLacking(v *config.Values, store locks.KnownStore, out *term.Printer, keys ...string) {
	for _, key := range keys {
		if lack := lackOf(store, key); lack != "" {
			refuse(v, out, lack, key)
		}
	}
}

// refuse refuses settings that have no meaning here, for the reason lack. A flag is a mistake. A setting from a
// variable or a file is meant for other runs: refuse drops it.
func refuse(v *config.Values, out *term.Printer, lack string, keys ...string) {
	for _, key := range keys {
		source, isGiven := v.Given(key)
		switch {
		case !isGiven:
		case source.FromFlag():
			v.Fail(key, "%s", lack)
		default:
			out.Step("ignored: "+lack, "setting", source.String())
			v.Drop(key)
		}
	}
}
