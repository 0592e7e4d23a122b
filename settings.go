package main

import (
	"os"
	"slices"

	"golock/config"
	"golock/locks"
	"golock/locks/open"
)

// The groups of settings that stand for each other.
const (
	groupLimit  = "limit"
	groupWait   = "wait"
	groupVolume = "volume"
)

// settings is the table of all settings: flag, variable, and type in the
// configuration file.
func settings() []config.Setting {
	return []config.Setting{
		{Key: config.NameKey, Env: "GOLOCK_NAME", Kind: config.String, NotInFile: true},
		{Key: config.ConfigKey, Env: "GOLOCK_CONFIG", Kind: config.String, NotInFile: true},
		{Key: "store", Env: "GOLOCK_STORE", Kind: config.String},
		{Key: "max", Env: "GOLOCK_MAX", Kind: config.Int, Group: groupLimit},
		{Key: "shared", Kind: config.Bool, Group: groupLimit},
		{Key: "exclusive", Kind: config.Bool, Group: groupLimit},
		{Key: "weight", Kind: config.Int},
		{Key: "wait", Env: "GOLOCK_WAIT", Kind: config.Duration, Group: groupWait},
		{Key: "no-wait", Kind: config.Bool, Group: groupWait},
		{Key: "conflict-exit-code", Env: "GOLOCK_CONFLICT_EXIT_CODE", Kind: config.Int},
		{Key: "priority", Kind: config.Int},
		{Key: "max-queue", Kind: config.Int},
		{Key: "replace", Kind: config.String},
		{Key: "hold", Env: "GOLOCK_HOLD", Kind: config.Duration},
		{Key: "time-limit", Env: "GOLOCK_TIME_LIMIT", Kind: config.Duration},
		{Key: "kill-after", Env: "GOLOCK_KILL_AFTER", Kind: config.Duration},
		{Key: "signal", Kind: config.Word},
		{Key: "rewrite", Kind: config.List},
		{Key: "ok-exit", Kind: config.List},
		{Key: "tree", Kind: config.Bool},
		{Key: "close", Kind: config.Bool},
		{Key: "exec", Kind: config.Bool},
		{Key: "ttl", Env: "GOLOCK_TTL", Kind: config.Duration},
		{Key: "on-lost", Env: "GOLOCK_ON_LOST", Kind: config.String},
		{Key: "show-args", Kind: config.Bool},
		{Key: "report", Env: "GOLOCK_REPORT", Kind: config.String},
		{Key: "older-than", Kind: config.Duration, NotInFile: true},
		{Key: "dead", Kind: config.Bool, NotInFile: true},
		{Key: "all", Kind: config.Bool, NotInFile: true},
		{Key: "verbose", Kind: config.Bool, Group: groupVolume},
		{Key: "quiet", Kind: config.Bool, Group: groupVolume},
		{Key: "log-format", Env: "GOLOCK_LOG_FORMAT", Kind: config.String},
	}
}

// flags collects what was given on the command line, by the key of the setting.
type flags map[string][]string

func (f flags) text(key string, value *word) {
	if value != nil {
		f[key] = []string{string(*value)}
	}
}

func (f flags) toggle(key string, values ...toggle) {
	for _, value := range values {
		if value != "" {
			f[key] = []string{string(value)}
		}
	}
}

func (f flags) list(key string, values []string) {
	if len(values) > 0 {
		f[key] = values
	}
}

func (f flags) resolve() (*config.Values, error) { return f.resolveWithout("") }

// resolveWithout passes over one variable.
func (f flags) resolveWithout(variable string) (*config.Values, error) {
	lookup := func(name string) (string, bool) {
		if name == variable {
			return "", false
		}
		return os.LookupEnv(name)
	}
	return config.Resolve(settings(), config.Layers{Flags: f, Lookup: lookup, Files: config.HostFiles()})
}

// bools reads several settings of the kind; the first error wins.
func bools(v *config.Values, into map[string]*bool) error {
	for _, s := range settings() { // in the table's order, so that the same mistake gives the same message
		target, ok := into[s.Key]
		if !ok {
			continue
		}
		value, err := v.Bool(s.Key, false)
		if err != nil {
			return err
		}
		*target = value
	}
	return nil
}

func addressOf(v *config.Values) string { return v.Text("store", "local") }

// storeOf opens the store that the settings name.
func storeOf(v *config.Values) (locks.Store, error) {
	store, err := open.Store(addressOf(v))
	if err != nil {
		return nil, v.Errorf("store", "%v", err)
	}
	return store, nil
}

// logging sets up the printer as the settings say.
func (p *printer) logging(v *config.Values) error {
	var verbose, quiet bool
	if err := bools(v, map[string]*bool{"verbose": &verbose, "quiet": &quiet}); err != nil {
		return err
	}
	if verbose && quiet {
		return v.Errorf("quiet", "cannot be combined with --verbose")
	}
	format := v.Text("log-format", "text")
	if !slices.Contains([]string{"text", "json"}, format) {
		return v.Errorf("log-format", "%q is neither text nor json", format)
	}
	p.verbose, p.quiet, p.json = verbose, quiet, format == "json"
	return nil
}
