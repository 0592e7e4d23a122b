package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"golock/cli/term"
	"golock/config"
	"golock/internal/entry"
	"golock/internal/passwd"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

type runCommand struct {
	slotFlags

	Timeout textFlag `name:"timeout" hidden:""`

	TimeLimit durationFlag `name:"time-limit" brief:"" variable:"GOLOCK_TIME_LIMIT" group:"ending" example:"6h" placeholder:"D" help:"Stop the command after D. The exit code is then 124."`
	KillAfter durationFlag `name:"kill-after" short:"k" variable:"GOLOCK_KILL_AFTER" builtin:"10s" group:"ending" placeholder:"D" help:"When golock itself stops the command, send KILL this long after the stop signal. With 0, send KILL instead of the stop signal."`
	Signal    wordFlag     `name:"signal" brief:"" builtin:"TERM" group:"ending" placeholder:"SIG" help:"Stop the command with this signal, a name or a number."`
	Rewrite   listFlag     `name:"rewrite" group:"ending" example:"HUP:USR1" placeholder:"A:B" help:"Deliver signal A to the command as B. A:0 drops A. Repeatable."`
	OkExit    listFlag     `name:"ok-exit" group:"ending" example:"143" placeholder:"CODE" help:"Report this exit code of the command as 0. Repeatable."`
	Tree      boolFlag     `name:"tree" group:"ending" help:"Wait until every descendant of the command has ended. Stopping the run stops them all."`
	Close     boolFlag     `name:"close" short:"o" group:"ending" help:"Do not let the command inherit the lock. If golock is killed, the slot is free although the command runs on. Only on stores of one machine."`
	Exec      boolFlag     `name:"exec" short:"F" brief:"" aliases:"no-fork" group:"ending" help:"Become the command after taking the slot: no golock process remains. A command that closes all descriptors releases the slot."`

	DieWithGolock boolFlag `name:"die-with-golock" group:"ending" help:"Let the kernel kill the command if golock is killed, but not its descendants. On a networked store, a watchdog kills all of them in any case."`

	OnUnavailable textFlag `name:"on-unavailable" variable:"GOLOCK_ON_UNAVAILABLE" builtin:"fail" group:"network" placeholder:"fail|skip|run" help:"If the store cannot be reached at the start, or refuses for a temporary reason, fail with 69, skip as if there were no slot (75, -E), or run the command without a slot and with GOLOCK_UNLOCKED=1; then two may run."`
	OnLost        textFlag `name:"on-lost" variable:"GOLOCK_ON_LOST" builtin:"stop" group:"network" placeholder:"stop|warn" help:"When the slot is lost on a networked store, stop the command and exit with 79, or only warn."`
	Report        textFlag `name:"report" brief:"" variable:"GOLOCK_REPORT" group:"output" example:"/var/log/golock.jsonl" placeholder:"FILE" help:"Append a line of JSON about this run to FILE when the run has ended."`

	logFlags

	Command rest `arg:"" optional:"" passthrough:"partial" name:"command" help:"The command and its arguments; write -- before a command that begins with a dash."`
}

func (*runCommand) Help() string {
	return `Everything after the first word that is not a flag belongs to the command.
A duration D is a number of seconds, such as 10 or 0.5, or has units: 1m30s, 2d.

Examples:
  */5 * * * * golock run --name sync -n -E 0 --time-limit 1h -- /usr/local/bin/sync-accounts
        a crontab line: skip this start, without mail, if the previous run is still running
  ExecStart=/usr/local/bin/golock run --exec --name db -- /usr/bin/worker
        a systemd unit: golock becomes the command, which keeps the unit's PID
  golock run --name cc --max 2 -- cc -c x.c
        at most two compilers at a time, as in make -j8 CC='golock run ...'
  golock run --name data -s -- report; golock run --name data -- load
        any number of reports run together, but none while data is loaded
  golock run --name gpu --max 4 -- sh -c 'CUDA_VISIBLE_DEVICES=$GOLOCK_SLOT train'
        each of four runs has a number of its own, from 0 to 3

Exit codes:
  the command's own; if it died of signal N, golock dies of N too (128+N in a shell);
  64 usage, 69 store not usable, 70 fault in golock, 75 no slot in time (-E),
  78 configuration, 79 slot lost, 124 time limit, 126 not executable, 127 not found

The command's environment has GOLOCK_ID, GOLOCK_SLOT, GOLOCK_SLOTS, GOLOCK_FENCE,
GOLOCK_LOCK_NAME, GOLOCK_LOCK_STORE and GOLOCK_HELD, or GOLOCK_UNLOCKED=1.`
}

var errMissingName error = usageError{errors.New("missing --name: every lock has a name; see golock run --help")}

func (c *runCommand) run(out *term.Printer) error {
	if c.Timeout.given() {
		return usageError{errors.New("--timeout: flock's --timeout is --wait here, timeout(1)'s is --time-limit")}
	}
	v, run, err := prepareRun(c, out)
	if err != nil {
		return err
	}
	run.Argv = c.Command
	if len(run.Argv) > 0 && run.Argv[0] == "--" {
		run.Argv = run.Argv[1:]
	}
	if len(run.Argv) == 0 {
		return usageError{errors.New("missing command: golock run --name NAME -- COMMAND; see golock run --help")}
	}
	conflictCode := readSlot(v, run, out)
	readExec(v, run, out)
	okExit := readEnd(v, run)
	run.Unavailable = runner.Unavailable(v.Choice("on-unavailable", "fail", string(runner.Skip), string(runner.RunAnyway)))
	checkProc(v, run)
	err = v.Err()
	switch {
	case err == errMissingName && len(run.Argv) > 2 && run.Argv[1] == "--":
		return fmt.Errorf("%w; did you mean --name %s?", err, locks.Printable(run.Argv[0], 80))
	case err == errMissingName: // it may stand after a word that began the command
		return withFlagHint(err, run.Argv)
	case err != nil:
		return err
	}
	report, err := openReport(v) // last: another mistake must not create the file
	if err != nil {
		return err
	}
	run.Env = commandEnvironment(run, out)
	run.OnProgress = out.OnProgress()
	run.Sockets = socketDir
	run.NotesHolders = report >= 0
	o := run.Do()
	if o.Kind == runner.NotFound {
		o.Err = withFlagHint(o.Err, run.Argv)
	}
	end := exitOfRun(o)
	if o.Kind == runner.Ended && slices.Contains(okExit, end.Code) {
		end = Exit{}
	}
	end = printError(out, errorOfOutcome(out, o, end, conflictCode)) // printed here, because the report needs the code
	if report >= 0 {
		if err := appendReport(report, run, o, end.Code); err != nil {
			out.Warn(fmt.Sprintf("the report could not be written to %s: %v", v.Text("report"), err))
		}
	}
	return exitError{code: end.Code, signal: end.Signal} // without an error, which was printed above
}

// commandEnvironment returns the environment of the command. It removes a WATCHDOG_PID that names
// golock: the command answers systemd's watchdog, and without the variable libsystemd lets any process
// of the unit answer (sd_watchdog_enabled(3)).
func commandEnvironment(run *runner.Run, out *term.Printer) []string {
	env := entry.Environ()
	if run.Exec { // the command keeps golock's PID
		return env
	}
	pid := strconv.Itoa(os.Getpid())
	if os.Getenv("LISTEN_PID") == pid { // sd_listen_fds(3): the PID of the command is not known before its start
		out.Warn("sockets of the service manager are for this process, not for the command: use --exec")
	}
	return slices.DeleteFunc(env, func(variable string) bool { return variable == "WATCHDOG_PID="+pid })
}

// withFlagHint adds a hint to "not found" if the command looks like the value of the flag before it:
// in -n 3 the 3 is the command.
func withFlagHint(err error, argv []string) error {
	before := len(os.Args) - len(argv) - 1 // the index of the word before the command
	if before < 1 {
		return err
	}
	flag, word := os.Args[before], argv[0]
	isFlag := len(flag) >= 2 && flag[0] == '-' && flag != "--"
	_, numberErr := config.ParseInt(word, 0, math.MaxInt32)
	_, signalErr := signals.Parse(word)
	looksLikeValue := numberErr == nil || signalErr == nil
	if !isFlag || !looksLikeValue {
		return err
	}
	return fmt.Errorf("%w (%s takes no value, so %q was taken for the command)", err, flag, word)
}

// prepareRun does what run and acquire have in common: it resolves the settings, opens the store,
// catches signals, reads the lock's name and sets up the log. The lean program may become the full one
// here.
func prepareRun(command any, out *term.Printer) (*config.Values, *runner.Run, error) {
	v, err := resolve(command)
	if err != nil {
		return nil, nil, err
	}
	// The error of openStore is returned after the log is set up, because the log has a format for errors.
	store, address, noStore := openStore(v)
	user := ""
	_, isRun := command.(*runCommand)
	needsUser := store.IsNetworked || isRun && v.Text("report") != ""
	if noStore == nil && needsUser {
		user = passwd.Name(os.Geteuid()) // once, and before signals are caught: a directory service may take seconds
	}
	terminal := runner.HasTerminal()
	relay, err := signals.NewRelay(terminal)
	if err != nil {
		return nil, nil, err
	}
	relay.Catch()
	run := &runner.Run{
		Store: store, Address: address.url, User: user, Relay: relay, Watchdog: leanWatchdog(), Terminal: terminal, Log: out.Log, Say: out.Say,
	}
	out.Request = &run.Request
	// The name is read before anything is printed, because each line shows it. readSlot reports a wrong
	// name, together with other mistakes.
	if noStore == nil && (store.IsPlain || locks.CheckName(v.Text("name")) == nil) {
		readNames(v, run)
	}
	if err := configureLog(out, v); err != nil {
		return nil, nil, err
	}
	if noStore != nil {
		return nil, nil, noStore
	}
	if address.exposed != "" {
		out.Warn(address.exposed + " has the store's password, and other users can read it")
	}
	return v, run, nil
}

// socketDir returns the directory in which golocks of this user find each other. It makes the directory if
// it is missing.
func socketDir() (string, error) { return open.Directory(true) }

// existingSocketDir is socketDir for a caller that only looks: it makes no directory.
func existingSocketDir() (string, error) { return open.Directory(false) }

// readEnd reads how the command is ended. It returns the exit codes that are reported as 0.
func readEnd(v *config.Values, run *runner.Run) (okExit []int) {
	for _, text := range v.List("ok-exit") {
		code, err := config.ParseInt(text, 0, 255)
		if err != nil {
			v.Fail("ok-exit", "%v", err)
		}
		okExit = append(okExit, code)
	}
	run.TimeLimit = v.Duration("time-limit")
	run.KillAfter = v.Duration("kill-after")
	stopSignal, err := signals.Parse(v.Text("signal"))
	if err != nil {
		v.Fail("signal", "%v", err)
	}
	run.StopSignal = stopSignal
	run.Rewrites = signals.Rewrites{}
	for _, rule := range v.List("rewrite") {
		if err := run.Rewrites.Add(rule); err != nil {
			v.Fail("rewrite", "%v", err)
		}
	}
	return okExit
}

// checkProc makes sure that /proc shows the descendants to a run that has to find them.
func checkProc(v *config.Values, run *runner.Run) {
	if !run.Tree && !run.NeedsWatchdog() {
		return
	}
	_, err := procfs.Self()
	lack := "/proc, which is not mounted here"
	if err == procfs.ErrForeign {
		lack = "the /proc of its PID namespace, which is not mounted here"
	}
	switch {
	case err == nil:
	case run.Tree:
		v.Fail("tree", "needs %s", lack)
	default:
		v.Reject(fmt.Errorf("the store %s needs %s, to stop a command in time (--on-lost warn does without)", run.Store.URL(), lack))
	}
}

// readExec reads what the command inherits, and whether a golock stays beside the command.
func readExec(v *config.Values, run *runner.Run, out *term.Printer) {
	refuseLacking(v, run.Store, out, "exec", "close")
	if v.Bool("exec") {
		resolveExec(v, out)
	}
	run.Tree, run.Close, run.Exec = v.Bool("tree"), v.Bool("close"), v.Bool("exec")
	run.DieWithGolock = v.Bool("die-with-golock")
	keeper := locks.KeptByRun
	if run.Exec {
		keeper = locks.KeptByCommand
	}
	run.Request.Keeper = keeper
	for i := range run.Earlier {
		run.Earlier[i].Keeper = keeper
	}
}

// resolveExec resolves the conflict of --exec with settings that need a golock beside the command. A flag
// counts more than a setting from a variable or a file, which is dropped. Two flags are a mistake.
func resolveExec(v *config.Values, out *term.Printer) {
	needGolock := []string{"close", "time-limit", "kill-after", "signal", "rewrite", "ok-exit", "tree", "report", "die-with-golock"}
	flagNeedsGolock := slices.ContainsFunc(needGolock, func(key string) bool {
		source, ok := v.Given(key)
		return ok && source.FromFlag()
	})
	exec, _ := v.Given("exec")
	if flagNeedsGolock && !exec.FromFlag() {
		out.Step("ignored: a flag needs a golock that stays", "setting", exec.String())
		v.Drop("exec")
		return
	}
	refuse(v, out, "cannot be combined with --exec: no golock process remains", needGolock...)
}
