package main

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
)

// The texts of --help. They are put into kong's model only when help is asked
// for: as tags of the grammar they would cost every start.

const helpRoot = `golock limits how many of a kind run at a time.

Examples:
  golock run --name backup -- rsync -a /srv /mnt/backup
        one at a time, the others wait in order
  golock run --name backup -n -E 0 -- rsync -a /srv /mnt/backup
        skip this time if one is running; for crontabs
  golock run --name cc --max 4 -- cc -c x.c
        at most four at a time
  golock ls
        who holds and who waits`

const helpRun = `Everything after the first word that is no flag belongs to the command.
A duration D is 10, 0.5 (seconds), 1m30s or 2d.

Examples:
  */5 * * * * golock run --name sync -n -E 0 -- /usr/local/bin/sync
        a crontab line: never two at once, no mail when one is skipped
  ExecStart=/usr/local/bin/golock run --exec --name db -- /usr/bin/worker
        a systemd unit: the command keeps the unit's process
  golock run --name cc --max 2 -- cc -c x.c
        at most two compilers at a time, as in make -j8 CC='golock run ...'
  golock run --name data -s -- report; golock run --name data -- load
        any number of reports together, but none while data is loaded
  golock run --name gpu --max 4 -- sh -c 'CUDA_VISIBLE_DEVICES=$GOLOCK_SLOT train'
        each of four has a number of its own, from 0 to 3

Exit codes:
  the command's own, 128+N if it died of signal N;
  64 usage, 69 store not usable, 70 fault in golock, 75 no slot in time (-E),
  78 configuration, 79 slot lost, 124 time limit, 126 not executable, 127 not found

The command sees GOLOCK_ID, GOLOCK_SLOT, GOLOCK_SLOTS, GOLOCK_FENCE,
GOLOCK_LOCK_NAME, GOLOCK_LOCK_STORE and GOLOCK_HELD.`

const helpAcquire = `Prints the ID of the slot alone on standard output. A process of golock's own keeps
the slot until golock release ID, or until the process of --for has ended in
whatever way. With --for none, on a networked store, nothing keeps it: it is free
after --ttl unless golock renew ID prolongs it by as much.

Examples:
  id=$(golock acquire --name deploy --for $$) || exit
  trap 'golock release "$id"' EXIT
  build; golock held --id "$id" && mv build/new /srv/site
        a script of its own; when it is killed the slot is free at once
  id=$(golock acquire --name data --shared --wait 10m --for $$)
        beside other readers, if there is no writer for ten minutes
  id=$(golock acquire --name env-3 --store redis://locks --ttl 2h --for none)
        a slot that outlives the job; another job calls golock release "$id"

Exit codes:
  64 usage, 69 store not usable, 75 no slot in time or the process has ended (-E),
  78 configuration, 128+N told by signal N to stop while it waited`

const helpRenew = `Examples:
  golock renew "$id"

Exit codes: 0 prolonged, 79 not held any more, 69 the store cannot be asked`

const helpRelease = `Only what golock acquire took can be given back; a run does that itself.

Examples:
  golock release "$id"

Exit codes: 0 given back, 79 it was not held any more, 69 the store cannot be asked`

const helpHeld = `For the moment before a step that must not be done without the slot. Of a
networked store the lease is renewed first. Prints nothing.

Examples:
  golock run --name site -- sh -c 'build new && golock held && mv new current'
  golock held --id "$id" || exit

Exit codes: 0 still held, 79 not any more (or nobody answers), 69 it cannot be told`

const helpLs = `Holders come first, then waiters in the order in which they will be served.

Examples:
  golock ls
  golock ls backup
  golock ls --watch --interval 5s
        redrawn in place until Ctrl-C; into a pipe or file a table whenever it changes
  golock ls --json | jq '.[] | select(.state == "waiting")'`

const helpClean = `Removes the entries of those who are gone, lock files that nobody uses, and what else
killed golocks have left; never what is in use, however many use it or clean up at the
same time. Nothing needs it to work: it is for tidiness.

Examples:
  golock clean
  golock clean --older-than 30d -q
        for a monthly crontab line`

const helpCheck = `The strength test: a thousand child processes, five at a time, each through a golock
run of its own. Each reads a counter that nothing else protects, adds one and writes
it back. The report on standard output says how many were inside at the same time,
whether an addition was lost, whether anybody was overtaken, and how long it took from
the end of one child to the start of the next. The lock it uses has a random name and
disturbs no other; with flock, fcntl and bind, the store itself is the lock.

With --max N each slot number has a counter of its own. With --kill some golocks are
killed with KILL at a random moment; what their children had not done is done by others
afterwards. With --with another tool is tested, and only whether no more than --max are
inside at a time. A test in which nothing happens for a minute has failed.

Examples:
  golock check
  golock check --store redis://locks.example.net --kill 20
  golock check --max 3 --loops 200
  golock check --with 'flock /tmp/x {}'
  golock check --with 'env {}'
        which locks nothing, and so fails

Exit codes:
  0 passed, 1 failed; 64 usage, 69 the store cannot be used, 78 configuration,
  128+N stopped by signal N (nothing stays behind)`
const helpDoctor = `Looks at this machine and at the store, as a run with the same flags would find
them, and tells what holds there and what does not: ok, note, or problem, why it
matters, and how to mend it. Takes and gives back the slot of a name that nobody
uses; leaves nothing behind. For SQL stores it prints the table's DDL.

Examples:
  golock doctor
  golock doctor --store redis://locks --ttl 10s
  golock doctor --json | jq '.[] | select(.level == "problem")'

Exit codes:
  0 every promise holds here (there may be notes), 1 there is a problem,
  69 the store cannot be reached or refuses: it could not be examined`
const helpReport = `Sums up what golock run --report has written, by lock: how many runs and what they
came to, and of the last one when it ended, how long it waited and ran, its exit code.
Give it all files of one node_exporter at once, rotated ones too.

Examples:
  golock report /var/log/golock.jsonl
  * * * * * golock report --textfile /var/lib/prometheus/node-exporter/golock.prom /var/log/golock.jsonl
        a crontab line; the metrics are described in docs/monitoring.md`

const helpBreak = `Evicts: the golock of each holder stops its command (--signal, then KILL after
--kill-after or what its lease leaves) and exits with 79. golock break returns
when the slots are free. A slot that only a --hold keeps is free at once; what a
golock that was killed has left running is killed.

Examples:
  golock break --name deploy
  golock break --name nightly --older-than 6h
  golock break --name nightly --dead
        only what no golock looks after any more
  golock break --id $(golock ls --json deploy | jq -r '.[0].id')

Exit codes:
  0 all that was meant is gone, also if that was nothing; 79 no such ID;
  69 something could not be told to go, or has not gone in 30 s (on a networked
  store: in twice its --ttl); the mark stays.`

const helpCompletion = `Completes commands, flags, their values, the names of locks that are held or
waited for, IDs, and behind golock run the command as if it stood alone.

Examples:
  source <(golock completion bash)
        in ~/.bashrc
  source <(golock completion zsh)
        in ~/.zshrc, after compinit
  golock completion fish > ~/.config/fish/completions/golock.fish`

// text is the help of one flag, argument or command.
type text struct {
	placeholder string
	help        string
}

func commandTexts() map[string]text {
	return map[string]text{
		"run":     {helpRun, "Hold a slot while a command runs."},
		"acquire": {helpAcquire, "Take a slot for a script; print its ID."},
		"renew":   {helpRenew, "Prolong what acquire took."},
		"release": {helpRelease, "Give back what acquire took."},
		"held":    {helpHeld, "Ask whether a slot is still held."},
		"ls":      {helpLs, "Show who holds and who waits."},
		"check":   {helpCheck, "Test whether a store, or another tool, excludes."},
		"clean":   {helpClean, "Remove what crashed golocks have left."},
		"doctor":  {helpDoctor, "Tell what this machine and the store guarantee, and what to mend."},
		"break":   {helpBreak, "Take slots back from those who hold them."},
		"report":  {helpReport, "Make of the lines of --report what Prometheus reads."},
		"version": {"", "Show the version."},

		"completion": {helpCompletion, "Print a completion script for a shell."},
	}
}

func valueTexts() map[string]text {
	return map[string]text{
		"help":   {"", "Show this help."},
		"name":   {"NAME", "The lock's name. Runs of one name in one store limit each other. With flock, fcntl and bind the store is the lock, and a name only a label. ($GOLOCK_NAME)"},
		"store":  {"URL", "Where the lock lives: local (the default), local:///DIR, flock:///FILE, fcntl:///FILE, bind://ADDRESS, redis://HOST and its kin (docs/stores.md). ($GOLOCK_STORE)"},
		"config": {"FILE", "Read this configuration file instead of /etc/golock.toml and ~/.config/golock/config.toml. ($GOLOCK_CONFIG)"},

		"for": {"PID|none", "The process that the slot is for, $$ in a shell: it is free when that has ended. Or none, on a networked store."},
		"id":  {"ID", "The entry: what acquire printed, GOLOCK_ID, or an id of golock ls --json. held without it asks for the run around."},

		"max":       {"N", "At most N at a time; 1 if not given. ($GOLOCK_MAX)"},
		"shared":    {"", "Run beside other --shared runs, but not beside one without: a reader's lock."},
		"exclusive": {"", "The same as --max 1: a writer's lock. (-e too)"},
		"weight":    {"W", "Units that this run takes of the max; 1 if not given."},

		"wait":               {"D", "Give up after D; golock waits for ever if not given. ($GOLOCK_WAIT)"},
		"no-wait":            {"", "Do not wait at all: the same as --wait 0. (--nonblock, --nb too)"},
		"conflict-exit-code": {"N", "Exit code when there was no slot in time, or the place in the queue was lost, instead of 75. With 0 nothing is printed either. ($GOLOCK_CONFLICT_EXIT_CODE)"},

		"priority":  {"P", "Higher goes first, equal ones in the order in which they came; an integer, 0 if not given."},
		"max-queue": {"N", "Give up at once if there is no slot and N wait already; 0 is the same as --no-wait."},
		"replace":   {"waiting|running", "The newest wins, among runs that say --replace themselves: end those that wait before this one (exit code 75); with running also those that run and said running (79). The slot is taken when the old command is dead."},
		"hold":      {"D", "Keep the slot until D after the start, even if the command ends sooner and whatever becomes of golock: with -n -E 0 one run per tick on many hosts. ($GOLOCK_HOLD)"},

		"time-limit": {"D", "Stop the command after D; the exit code is 124 then. ($GOLOCK_TIME_LIMIT)"},
		"kill-after": {"D", "When golock itself stops the command: time from the stop signal to KILL; 10s if not given, 0 kills at once. ($GOLOCK_KILL_AFTER)"},
		"signal":     {"SIG", "The stop signal, by name or number; TERM if not given."},
		"rewrite":    {"A:B", "Pass signal A on as B; A:0 drops it. May be given several times."},
		"ok-exit":    {"CODE", "Report this exit code of the command as 0. May be given several times."},
		"tree":       {"", "The run lasts until every descendant of the command has ended; stopping it stops them all."},
		"close":      {"", "Do not hand the lock on to the command: if golock is killed the slot is free, though the command runs on."},
		"exec":       {"", "Take the slot, then become the command: no golock stays behind. (--no-fork too)"},

		"ttl":       {"D", "On a networked store: the slot is free this long after golock was last heard of; 30s if not given, at least 1s. ($GOLOCK_TTL)"},
		"on-lost":   {"stop|warn", "On a networked store, when the slot is lost: stop the command, exit code 79 (the default), or only warn. ($GOLOCK_ON_LOST)"},
		"show-args": {"", "On a networked store: show all arguments of the command to others, not only their number."},

		"report": {"FILE", "Append a line of JSON about this run to FILE when it has ended. ($GOLOCK_REPORT)"},

		"verbose":    {"", "Tell each step, and when, on standard error."},
		"quiet":      {"", "Print nothing while waiting, when there is no slot in time or the time limit is reached, and no warnings."},
		"log-format": {"FORMAT", "text or json. ($GOLOCK_LOG_FORMAT)"},

		"textfile": {"FILE", "Replace FILE, in one step, instead of printing: for node_exporter's textfile collector."},

		"older-than": {"D", "Only what is at least so old: has held or waited for so long, or has not been in use."},
		"dead":       {"", "Only what has no golock any more: what a killed one has left running, and what only --hold keeps."},
		"all":        {"", "Waiters too; their exit code is 75."},

		"loops":    {"N", "How many children; 1000 if not given."},
		"children": {"N", "How many at a time; 5 if not given, more for a larger --max."},
		"kill":     {"PERCENT", "How many of a hundred golocks are killed at a random moment; 0 if not given."},
		"with":     {"TEMPLATE", "Test this shell command, with the child's command line in place of {}, instead of golock."},

		"shell":    {"", "bash, zsh or fish."},
		"json":     {"", "Print a JSON array."},
		"watch":    {"", "Look again and again, and redraw the table in place, until Ctrl-C (exit code 0)."},
		"interval": {"D", "With --watch: look every D; 1s if not given."},
		"reports":  {"", "Files that --report has written, in any order."},
		"command":  {"", "The command and its arguments, after -- if it could be taken for a flag."},
		"lock":     {"", "Show this lock only."},
	}
}

// explain puts the texts into the model, if the arguments ask for help.
func explain(model *kong.Application, args []string) error {
	if !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil
	}
	model.Help = helpRoot
	commands, values := commandTexts(), valueTexts()
	return kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Node:
			n.Help, n.Detail = commands[n.Name].help, commands[n.Name].placeholder
		case *kong.Flag:
			n.Help, n.PlaceHolder = values[n.Name].help, values[n.Name].placeholder
		case *kong.Value:
			n.Help = values[n.Name].help
		}
		return next(nil)
	})
}

// printHelp is kong's, with a usage line that has flags and command in the
// order in which they must stand.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	usage := "golock COMMAND"
	if node := ctx.Selected(); node != nil {
		usage = usageOf(node.Name)
	}
	if _, err := fmt.Fprintf(ctx.Stdout, "Usage: %s\n", usage); err != nil {
		return outputError{err}
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return outputError{err}
	}
	return nil
}

// usageOf is how a command is called.
func usageOf(name string) string {
	switch name {
	case "run":
		return "golock run --name NAME [flags] [--] COMMAND [ARG...]"
	case "acquire":
		return "golock acquire --name NAME --for PID|none [flags]"
	case "renew", "release":
		return "golock " + name + " [flags] ID"
	case "break":
		return "golock break --name NAME | --id ID [flags]"
	case "ls":
		return "golock ls [flags] [NAME]"
	case "report":
		return "golock report [flags] REPORT..."
	case "completion":
		return "golock completion bash|zsh|fish"
	case "version":
		return "golock version"
	}
	return "golock " + name + " [flags]"
}
