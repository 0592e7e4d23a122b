// Package config finds out what the user wants: it puts the flags, the
// environment and the configuration files in their order of precedence and
// hands out typed values.
//
// It promises that a value is always reported together with the place it came
// from, that nothing misspelt in a file passes unseen, and that a file which
// somebody else could have written is never used. Which settings exist is told
// to it by a table; what they mean, which of them contradict each other and
// what applies when nobody gave one is left to the caller. It never prints.
// Where no file exists it costs a look into the password database and two
// failed opens.
//
// Precedence, from the strongest:
//
//	flag
//	environment variable
//	[lock."NAME"] of the user's file
//	[lock."NAME"] of the system's file
//	[defaults] of the user's file
//	[defaults] of the system's file
package config

import "fmt"

// NameKey and ConfigKey are the two settings that Resolve looks at itself: the
// name selects the [lock."NAME"] table, config names the only file to read.
// Both come from a flag or the environment; their rows need NotInFile.
const (
	NameKey   = "name"
	ConfigKey = "config"
)

// Kind says how a setting may be written. Flags and variables are always text;
// in a file the TOML type has to fit as well.
type Kind int

// The kinds, with the TOML types each one takes.
const (
	String   Kind = iota // a string
	Word                 // a string or an integer, for things that have names and numbers (signals)
	Int                  // an integer, see ParseInt
	Bool                 // true or false
	Duration             // a string, or an integer or float of seconds, see ParseDuration
	List                 // an array of strings and integers, or just one of them; never merged across sources
)

// Setting is one row of the table of all settings.
type Setting struct {
	Key       string // the long flag without its dashes, and the key in a file: "kill-after"
	Env       string // the environment variable, "" if there is none
	Kind      Kind
	Group     string // settings with the same Group are alternatives; "" for a setting that has none
	NotInFile bool   // only flag and environment may give it
}

// Layers is everything that Resolve draws from. Its zero value gives nothing.
type Layers struct {
	// Flags holds the texts of the flags that were really given, by key. Of a
	// flag given more than once the last counts, except for a List, which
	// takes all. "true" and "false" are the texts of a Bool.
	Flags map[string][]string

	// Lookup reads the environment, as os.LookupEnv does. A variable that is
	// set but empty counts as unset.
	Lookup func(name string) (string, bool)

	// Files says where files are looked for, usually HostFiles().
	Files Files
}

// Resolve reads the files and puts all sources in order. The highest source
// that gives any setting of a group hides the whole group of all lower ones, so
// that --shared on the command line is not contradicted by a max in a file; two
// settings of one group in the same source both remain, for the caller to
// judge.
//
// Files are checked in full, also those of their tables that do not apply now.
// The texts of flags and variables are checked when Values is asked for them.
// The error is an *Error. A key in Flags that is not in the table is a mistake
// in the program, and panics.
func Resolve(settings []Setting, from Layers) (*Values, error) {
	v := &Values{settings: settings, found: make([]given, len(settings))}
	for key := range from.Flags {
		v.index(key)
	}
	v.add(func(s Setting) (given, bool) {
		texts := from.Flags[s.Key]
		return given{texts: texts, source: Source{Key: s.Key}}, len(texts) > 0
	})
	v.add(func(s Setting) (given, bool) {
		if s.Env == "" || from.Lookup == nil {
			return given{}, false
		}
		text, _ := from.Lookup(s.Env)
		return given{texts: []string{text}, source: Source{Key: s.Key, Env: s.Env}}, text != ""
	})

	files, err := v.load(from.Files)
	if err != nil {
		return nil, err
	}
	if i, ok := v.find(NameKey); ok && v.found[i].layer > 0 {
		name := v.found[i].last()
		for _, f := range files {
			v.add(f.locks[name].layer(f.path))
		}
	}
	for _, f := range files {
		v.add(f.defaults.layer(f.path))
	}
	return v, nil
}

// load reads the files that apply, the strongest first.
func (v *Values) load(files Files) ([]file, error) {
	paths, explicit := []string(nil), false
	if i, ok := v.find(ConfigKey); ok && v.found[i].layer > 0 {
		if v.found[i].last() == "" {
			return nil, v.Errorf(ConfigKey, "names no file")
		}
		paths, explicit = []string{v.found[i].last()}, true
	} else {
		var err error
		if paths, err = files.Paths(); err != nil {
			return nil, err
		}
	}

	var all []file
	for _, path := range paths {
		data, err := files.read(path)
		if isMissing(err) {
			if explicit {
				return nil, &Error{Source{File: path}, fmt.Sprintf("there is no such file, though %s names it", v.source(ConfigKey))}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		f, err := parse(path, data, v.settings)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
