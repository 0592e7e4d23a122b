package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golock/config"
	"golock/locks"
)

// A flag is declared once, as a field in the struct of its command. The field's
// type says how a value is written, its tags say the rest. Kong knows the tags
// name, short, aliases, placeholder, hidden and help; these are golock's:
//
//	variable:"V"     the environment variable; kong would take its value for a flag
//	builtin:"V"      the default
//	alternative:"X"  flags with the same X exclude each other
//	file:"no"        no configuration file can give it
//	empty:"set"      an empty variable is a value
//	names:"each"     each name of a run has its own value
//	example:"V"      a value for the sample file, where there is no default
//	brief:""         -h shows it
//
// The tag help stands last: readTags stops there. Everything else is derived: settings and
// parseFast below; help, manual, reference and completion from kong's model.

// argument is a value on the command line. It consists of bytes, because kong's own strings would
// turn it into UTF-8.
type argument struct{ texts []string }

// The types of flags.
type (
	textFlag     struct{ argument }
	wordFlag     struct{ argument } // a name or a number
	intFlag      struct{ argument }
	durationFlag struct{ argument }
	listFlag     struct{ argument }
	boolFlag     struct{ argument }
	rest         []string // all remaining arguments
)

// flagValue is a field of one of the types of flags.
type flagValue interface {
	kind() config.Kind
	arg() *argument
}

func (*textFlag) kind() config.Kind     { return config.String }
func (*wordFlag) kind() config.Kind     { return config.Word }
func (*intFlag) kind() config.Kind      { return config.Int }
func (*durationFlag) kind() config.Kind { return config.Duration }
func (*listFlag) kind() config.Kind     { return config.List }
func (*boolFlag) kind() config.Kind     { return config.Bool }

func (a *argument) arg() *argument { return a }

// given reports whether the flag is on the command line.
func (a *argument) given() bool { return a.texts != nil }

// text returns the last value, or "" if there is none.
func (a *argument) text() string {
	if a.texts == nil {
		return ""
	}
	return a.texts[len(a.texts)-1]
}

// on reports whether the command line sets the flag.
func (f *boolFlag) on() bool { return f.text() == "true" }

// declaration is a field of a command's struct.
type declaration struct {
	config.Setting
	short, aliases string
	hidden         bool
	positional     bool // the field is an argument, not a flag; all arguments are optional
	// One of these pointers leads to the field, the other is nil. Both are nil for the files of golock report,
	// which kong reads.
	*argument
	rest *rest
}

// declarations reads a command's struct, given as a pointer. It runs at every start:
// reflect.VisibleFields would take three times as long.
func declarations(command any) []declaration {
	return appendDeclarations(make([]declaration, 0, 48), reflect.ValueOf(command).Elem())
}

func appendDeclarations(all []declaration, v reflect.Value) []declaration {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			all = appendDeclarations(all, v.Field(i))
			continue
		}
		var d declaration
		switch pointer := v.Field(i).Addr().Interface().(type) {
		case flagValue:
			d.Kind, d.argument = pointer.kind(), pointer.arg()
		case *rest:
			d.rest = pointer
		}
		d.readTags(string(field.Tag))
		all = append(all, d)
	}
	return all
}

// readTags reads all tags before help in one pass. reflect.StructTag.Lookup would take a pass for each tag.
func (d *declaration) readTags(tags string) {
	for tags != "" {
		name, value, _ := strings.Cut(tags, `:"`)
		if name == "help" {
			return
		}
		value, tags, _ = strings.Cut(value, `"`)
		tags = strings.TrimPrefix(tags, " ")
		switch name {
		case "name":
			d.Key = value
		case "short":
			d.short = value
		case "aliases":
			d.aliases = value
		case "variable":
			d.Env = value
		case "builtin":
			d.Default = value
		case "alternative":
			d.Group = value
		case "file":
			d.NotInFile = true
		case "empty":
			d.EmptyIsSet = true
		case "names":
			d.OfEachName = true
		case "hidden":
			d.hidden = true
		case "arg":
			d.positional = true
		}
	}
}

// parseFast parses a command line as kong does, but without kong's grammar, which takes longer
// to build than a lock takes to get. It reports false for mistakes, --help, and values that look
// like flags: kong parses such a line.
func parseFast(command any, args []string) bool {
	p := fastParser{declarations(command), args}
	for len(p.args) > 0 {
		word := p.args[0]
		isTaken := false
		switch {
		case len(word) < 2 || word[0] != '-' || word == "--":
			isTaken = p.takeArgument()
		case word[1] == '-':
			p.args = p.args[1:]
			isTaken = p.takeLongFlag(word[2:])
		default:
			p.args = p.args[1:]
			isTaken = p.takeLetters(word[1:])
		}
		if !isTaken {
			return false
		}
	}
	return true
}

// fastParser parses the arguments of one command. Its methods return false if kong has to parse them.
type fastParser struct {
	all  []declaration
	args []string // the arguments that are not parsed yet
}

// takeArgument takes the next argument. A field of the type rest gets all that are left.
func (p *fastParser) takeArgument() bool {
	i := slices.IndexFunc(p.all, func(d declaration) bool { return d.positional })
	if i < 0 {
		return false
	}
	d := p.all[i]
	switch {
	case d.rest != nil:
		*d.rest, p.args = p.args, nil
	case d.argument == nil || d.given() || p.args[0] == "--":
		return false
	default:
		d.texts, p.args = p.args[:1:1], p.args[1:]
	}
	return true
}

// takeLongFlag takes a word such as --no-wait or --wait=5, without its dashes.
func (p *fastParser) takeLongFlag(word string) bool {
	name, value, isAttached := strings.Cut(word, "=")
	if len(name) < 2 {
		return false
	}
	return p.takeFlag(name, value, isAttached)
}

// takeLetters takes a word such as -n, -nE0 or -w5, without its dash.
func (p *fastParser) takeLetters(word string) bool {
	if strings.Contains(word, "=") {
		return false
	}
	for i := range len(word) {
		letter, rest := word[i:i+1], word[i+1:]
		d := p.find(letter)
		if d == nil {
			return false
		}
		if d.Kind != config.Bool { // the rest of the word is the flag's value
			isAttached := rest != ""
			return p.takeFlag(letter, rest, isAttached)
		}
		d.texts = append(d.texts, "true")
	}
	return true
}

// takeFlag takes a flag and its value. A value that is not attached is the next argument.
func (p *fastParser) takeFlag(name, value string, isAttached bool) bool {
	d := p.find(name)
	switch {
	case d == nil:
		return false
	case d.Kind == config.Bool && !isAttached:
		value = "true"
	case d.Kind == config.Bool && value != "true" && value != "false":
		return false
	case isAttached:
	case len(p.args) == 0 || strings.HasPrefix(p.args[0], "-"):
		return false
	default:
		value, p.args = p.args[0], p.args[1:]
	}
	d.texts = append(d.texts, value)
	return true
}

// find returns the flag that a name or a letter stands for, or nil.
func (p *fastParser) find(name string) *declaration {
	for i := range p.all {
		d := &p.all[i]
		isAlias := d.aliases != "" && slices.Contains(strings.Split(d.aliases, ","), name)
		if !d.positional && (isAlias || name == d.Key || name == d.short) {
			return d
		}
	}
	return nil
}

// settings returns what flags, variables and files can give a command: its own flags
// and the flags of golock run, for which variables and files are made. given has the
// values on the command line, by key.
func settings(command any) (all []config.Setting, given map[string][]string) {
	all, given = make([]config.Setting, 0, 48), map[string][]string{}
	if _, isRun := command.(*runCommand); !isRun {
		all, _ = settings(&runCommand{})
	}
	common := len(all)
	for _, d := range declarations(command) {
		if d.positional || d.hidden {
			continue
		}
		if d.given() {
			given[d.Key] = d.texts
		}
		if !slices.ContainsFunc(all[:common], func(s config.Setting) bool { return s.Key == d.Key }) {
			all = append(all, d.Setting)
		}
	}
	return all, given
}

// storeFlags say where the lock lives.
type storeFlags struct {
	Store     textFlag `name:"store" brief:"" variable:"GOLOCK_STORE" builtin:"local" empty:"set" alternative:"store" group:"slot" placeholder:"URL" help:"Where the lock lives: local, local:///DIR, flock:///FILE, redis://HOST, postgres://HOST/DB, etcd://HOSTS and others: see stores.md in share/doc/golock."`
	StoreFile textFlag `name:"store-file" brief:"" variable:"GOLOCK_STORE_FILE" empty:"set" alternative:"store" group:"slot" placeholder:"FILE" help:"Read the store's URL from the first line of FILE, such as a credential of systemd or a secret of docker. A file that others may write is refused."`
	configFlag
}

// configFlag names a configuration file.
type configFlag struct {
	Config textFlag `name:"config" variable:"GOLOCK_CONFIG" file:"no" group:"output" placeholder:"FILE" help:"Read this configuration file instead of /etc/golock.toml and ~/.config/golock/config.toml."`
}

type nameFlag struct {
	Name textFlag `name:"name" brief:"" variable:"GOLOCK_NAME" file:"no" group:"slot" placeholder:"NAME" help:"The lock's name. Slots of the same name in the same store limit each other. golock run takes up to 16 names, and holds all of them. On flock, fcntl and bind, the URL is the lock, and the name only labels it."`
}

func (*nameFlag) readsName() {}

// slotFlags say which slot a run or acquire takes, and how.
type slotFlags struct {
	nameFlag
	storeFlags
	Note             textFlag `name:"note" variable:"GOLOCK_NOTE" group:"slot" example:"https://ci.example/job/17" placeholder:"TEXT" help:"Say why this run exists. ls, runs that wait for it, reports and JSON logs show the text. At most 200 characters. Everybody who may read the store can see it."`
	RequireNetworked boolFlag `name:"require-networked" brief:"" variable:"GOLOCK_REQUIRE_NETWORKED" group:"slot" help:"Refuse a store that limits only the runs of one machine."`

	Max       intFlag  `name:"max" names:"each" short:"m" brief:"" variable:"GOLOCK_MAX" builtin:"1" alternative:"limit" group:"slot" placeholder:"N" help:"Let at most N runs of this name run at a time."`
	Shared    boolFlag `name:"shared" names:"each" short:"s" brief:"" alternative:"limit" group:"slot" help:"Take a reader's lock: runs with --shared run together; a run without it runs alone."`
	Exclusive boolFlag `name:"exclusive" names:"each" short:"x" aliases:"e" alternative:"limit" group:"slot" help:"Take a writer's lock: --max 1, whatever the configuration says."`
	Weight    intFlag  `name:"weight" names:"each" builtin:"1" group:"slot" placeholder:"W" help:"Take W of the --max slots."`

	Wait             durationFlag `name:"wait" short:"w" brief:"" variable:"GOLOCK_WAIT" alternative:"wait" group:"waiting" example:"1h" placeholder:"D" help:"Give up after waiting for D. Without it, golock waits for ever."`
	NoWait           boolFlag     `name:"no-wait" short:"n" brief:"" aliases:"nonblock,nb" alternative:"wait" group:"waiting" help:"Do not wait for a slot: the same as --wait 0. If the server has just come back, golock still waits for it, for up to 5s."`
	ConflictExitCode intFlag      `name:"conflict-exit-code" short:"E" brief:"" variable:"GOLOCK_CONFLICT_EXIT_CODE" builtin:"75" group:"waiting" placeholder:"N" help:"Exit with N if there was no slot in time, or the run was evicted while it waited. With 0, golock prints nothing about it."`

	Jitter   durationFlag `name:"jitter" group:"waiting" example:"5s" placeholder:"D" help:"Wait for a random time of up to D first. This spreads hosts that start at the same moment."`
	Priority intFlag      `name:"priority" names:"each" builtin:"0" group:"waiting" placeholder:"P" help:"Go before waiters with a lower priority. P is an integer. Within a priority the order is first come, first served. Not on flock, fcntl and bind."`
	MaxQueue intFlag      `name:"max-queue" group:"waiting" example:"10" placeholder:"N" help:"Give up at once if there is no slot and N runs wait already. 0 is the same as --no-wait."`
	Replace  textFlag     `name:"replace" group:"waiting" example:"waiting" placeholder:"waiting|running" help:"Among runs that use --replace, the newest wins. With waiting, evict those that wait ahead of this one (exit code 75). With running, evict also those that run with --replace running (79); this run starts when the old command is dead."`
	Hold     durationFlag `name:"hold" brief:"" variable:"GOLOCK_HOLD" group:"ending" example:"1m" placeholder:"D" help:"Keep the slot until D after the start, even if the command ends sooner or golock is killed. With -n -E 0: one run per tick across all hosts. Not on flock, fcntl and bind."`

	TTL      durationFlag `name:"ttl" names:"each" brief:"" variable:"GOLOCK_TTL" builtin:"30s" group:"network" placeholder:"D" help:"Set the lease time of a networked store: the slot is lost D after the last renewal. 1s to 3650d."`
	ShowArgs boolFlag     `name:"show-args" group:"network" help:"On a networked store, publish all arguments of the command, not only their number."`
}

// logFlags say how much a command prints about itself.
type logFlags struct {
	Verbose   boolFlag `name:"verbose" short:"v" brief:"" alternative:"volume" group:"output" help:"Print each step with its time on standard error."`
	Quiet     boolFlag `name:"quiet" short:"q" brief:"" alternative:"volume" group:"output" help:"Print neither waiting lines nor warnings. Why a command was stopped or not started is still printed, unless -E 0 makes it a success."`
	LogFormat textFlag `name:"log-format" variable:"GOLOCK_LOG_FORMAT" builtin:"text" group:"output" placeholder:"text|json" help:"Select the format of what golock prints on standard error."`
}

// lockArgument names the lock, as an argument or with --name. GOLOCK_NAME, which is meant for
// golock run, does not name it.
type lockArgument struct {
	Lock textFlag `arg:"" optional:"" name:"lock" help:"The lock's name."`
	Name textFlag `name:"name" file:"no" placeholder:"NAME" help:"The lock's name, instead of the argument."`
}

// nameLock makes the argument --name, which selects the lock's table in the configuration file.
func (a *lockArgument) nameLock() error {
	if err := mergeArgument(&a.Lock, &a.Name, "--name"); err != nil || !a.Name.given() {
		return err
	}
	name := a.Name.text()
	if err := locks.CheckName(name); err != nil {
		return usageError{fmt.Errorf("name %q: %w", locks.Printable(name, 80), err)}
	}
	return nil
}

// entryFlags name an entry, as an argument or with --id, and its store.
type entryFlags struct {
	storeFlags
	Entry textFlag `arg:"" optional:"" name:"entry" help:"The entry's ID."`
	idFlag
}

// mergeArgument copies an argument to the flag with the same meaning. If both are given, the error calls the flag
// name.
func mergeArgument(argument, flag *textFlag, name string) error {
	switch {
	case argument.given() && flag.given():
		return usageError{fmt.Errorf("%s and the argument %q cannot be combined: they mean the same", name, locks.Printable(argument.text(), 80))}
	case argument.given():
		*flag = *argument
	}
	return nil
}
