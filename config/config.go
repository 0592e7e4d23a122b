// Package config merges flags, variables and files into typed values. It never prints, and knows the
// source of every value. Two settings have a meaning here: "name" selects a [lock."NAME"] table, and
// "config" names the only file to read.
//
// Precedence, the strongest first:
//
//	flag
//	environment variable
//	[lock."NAME"] of the user's file
//	[lock."NAME"] of the system's file
//	[defaults] of the user's file
//	[defaults] of the system's file
package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golock/internal/spelling"
)

// Kind says how a setting is written in a file, in the words of an error.
type Kind string

const (
	String   Kind = "a string in quotes"
	Word     Kind = "a string in quotes or an integer" // signals have names and numbers
	Int      Kind = "an integer without quotes"
	Bool     Kind = "true or false without quotes"
	Duration Kind = `seconds or a string such as "1m30s"`
	List     Kind = "an array of strings in quotes or integers" // a single string or integer is a list of one
)

// Setting declares one setting.
type Setting struct {
	Key        string // the long flag without dashes, and the key in a file
	Env        string // the environment variable; "" if the setting has none
	Kind       Kind
	Default    string
	Group      string // settings with the same group are alternatives
	NotInFile  bool
	EmptyIsSet bool // an empty variable is a value; for other settings it counts as unset
	OfEachName bool // each name of a run has its own value; other settings have one value for all names
}

// Layers is everything that Resolve reads.
type Layers struct {
	Flags  map[string][]string              // texts by key; the last text counts, for a List all do
	Lookup func(name string) (string, bool) // looks up a variable, as os.LookupEnv does
	Files  Files
}

// Source says where a value comes from: a file if File is set, else a variable
// if Env is set, else a flag.
type Source struct {
	Key, Env, File string

	line func() int // finds the line in the file, from 1; nil if the source is not a line
}

// FromFlag reports whether the source is the command line.
func (s Source) FromFlag() bool { return s.File == "" && s.Env == "" }

// FromVariable reports whether the source is an environment variable.
func (s Source) FromVariable() bool { return s.File == "" && s.Env != "" }

// String names the source: "--max", "GOLOCK_MAX", "/etc/golock.toml:7: max".
func (s Source) String() string {
	switch {
	case s.FromFlag():
		return "--" + s.Key
	case s.File == "":
		return s.Env
	}
	text := s.File
	if s.line != nil {
		text += ":" + strconv.Itoa(s.line())
	}
	if s.Key != "" {
		text += ": " + s.Key
	}
	return text
}

// Error is something that the user has to change.
type Error struct {
	Source  Source
	Problem string
	Cause   error // the error of the system call that failed; nil if none did
}

// HostFailed reports whether the host could not read a file now, so that the user has nothing to
// change in the file.
func (e *Error) HostFailed() bool { return isHostFailure(e.Cause) }

func isHostFailure(err error) bool {
	for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EIO, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (e *Error) Error() string { return e.Source.String() + ": " + e.Problem }

func (e *Error) Unwrap() error { return e.Cause }

// Resolve reads all sources. The strongest source that gives a setting of a group hides all settings
// of that group in weaker sources, so that alternatives of two sources never mix. Resolve checks every
// file in full. Values checks flags and variables when a method reads them. The error is an *Error.
func Resolve(settings []Setting, from Layers) (*Values, error) {
	v := &Values{settings: settings, found: make([]value, len(settings))}
	v.add(func(s Setting) value { return value{from.Flags[s.Key], Source{Key: s.Key}} })
	v.add(func(s Setting) value {
		text, isSet := from.Lookup(s.Env)
		if text != "" || isSet && s.EmptyIsSet {
			return value{[]string{text}, Source{Key: s.Key, Env: s.Env}}
		}
		return value{}
	})
	files, err := v.load(from.Files)
	if err != nil {
		return nil, err
	}
	names := v.List("name")
	last := max(len(names)-1, 0)
	for i := range last {
		earlier := &Values{settings: settings, found: slices.Clone(v.found)}
		earlier.addFiles(files, names[i:i+1])
		v.Earlier = append(v.Earlier, earlier)
	}
	v.addFiles(files, names[last:])
	return v, v.checkAgreement()
}

// addFiles adds what the files give for a name. The list has one name or none: without a name only the
// tables [defaults] count.
func (v *Values) addFiles(files []*file, nameOrNone []string) {
	for _, name := range nameOrNone {
		for _, f := range files {
			v.add(func(s Setting) value { return f.locks[name][s.Key] })
		}
	}
	for _, f := range files {
		v.add(func(s Setting) value { return f.defaults[s.Key] })
	}
}

// checkAgreement makes sure that the names of a run have the same values of the settings that concern the
// run as a whole. If they differ, at least one of the two values comes from a file, and the error names it.
func (v *Values) checkAgreement() error {
	names := v.List("name")
	lastName := len(names) - 1
	for n, earlier := range v.Earlier {
		for i, s := range v.settings {
			earlierValue, lastValue := earlier.found[i], v.found[i]
			if s.OfEachName || isSame(s.Kind, earlierValue.texts, lastValue.texts) {
				continue
			}
			source, name := earlierValue.source, names[n]
			if earlierValue.texts == nil {
				source, name = lastValue.source, names[lastName]
			}
			problem := fmt.Sprintf("is that of the lock %q, not of all %d names, and a run has one for all of them: give it as a flag", name, len(names))
			return &Error{Source: source, Problem: problem}
		}
	}
	return nil
}

// CheckVariable checks the name of a variable that begins with prefix, as the variables of all
// settings do. It reports whether the variable is a setting. It returns an *Error if somebody likely
// meant a setting: the variable has the name of a flag without a variable, or misspells a setting.
// Other variables belong to other programs: Kubernetes sets GOLOCK_PORT for a Service called golock,
// images set GOLOCK_VERSION.
func CheckVariable(name, prefix string, settings []Setting) (isSetting bool, err error) {
	const problem = "is not a setting of golock"
	word := strings.TrimPrefix(name, prefix)
	key := strings.ToLower(strings.ReplaceAll(word, "_", "-"))
	meant := ""
	for _, s := range settings {
		switch {
		case s.Env == name:
			return true, nil
		case s.Key == key:
			return false, &Error{Source: Source{Env: name}, Problem: problem + ": use --" + key}
		case s.Env != "" && meant == "" && spelling.IsMisspelling(word, strings.TrimPrefix(s.Env, prefix)):
			meant = s.Env
		}
	}
	if meant != "" {
		return false, &Error{Source: Source{Env: name}, Problem: problem + "; did you mean " + meant + "?"}
	}
	return false, nil
}

// isSame reports whether two values of a setting mean the same. A duration can be written in several ways.
func isSame(kind Kind, a, b []string) bool {
	if slices.Equal(a, b) {
		return true
	}
	if kind != Duration || len(a) == 0 || len(b) == 0 {
		return false
	}
	durationA, errA := ParseDuration(a[len(a)-1])
	durationB, errB := ParseDuration(b[len(b)-1])
	return errA == nil && errB == nil && durationA == durationB
}

// add adds a source that is weaker than all before. get returns the value that the source has for a setting,
// or a value without texts.
func (v *Values) add(get func(Setting) value) {
	isTaken := map[string]bool{} // groups of which a stronger source gives a setting
	for i, s := range v.settings {
		if s.Group != "" && v.found[i].texts != nil {
			isTaken[s.Group] = true
		}
	}
	for i, s := range v.settings {
		if v.found[i].texts == nil && !isTaken[s.Group] {
			v.found[i] = get(s)
		}
	}
}

// load reads the files that apply, the strongest first.
func (v *Values) load(files Files) (all []*file, err error) {
	if source, isGiven := v.Given("config"); isGiven {
		return v.loadExplicit(files, source)
	}
	path, err := files.UserFile()
	if isHostFailure(err) {
		return nil, &Error{Source: Source{File: files.Users.Passwd}, Problem: err.Error(), Cause: err}
	}
	if err != nil {
		v.Warnings = append(v.Warnings, err.Error())
	}
	if path == "" && err == nil {
		// A directory service that is down, such as sssd, lets getent say that there is no such user.
		v.Notes = append(v.Notes, fmt.Sprintf("the password database has no home directory of user %d, so no user's configuration file counts", files.Home))
	}
	if path != "" {
		all, err = v.append(all, files, path)
		if isOutOfReach(err) {
			v.noteOutOfReach(path, err)
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	return v.append(all, files, files.System)
}

// loadExplicit reads only the file that a flag or a variable names.
func (v *Values) loadExplicit(files Files, source Source) ([]*file, error) {
	path, err := v.Path("config")
	if err != nil {
		return nil, err
	}
	switch path {
	case "":
		return nil, v.Errorf("config", "names no file")
	case "/dev/null": // the usual way to say: no file
		return nil, nil
	}
	all, err := v.append(nil, files, path)
	if err == nil && all == nil {
		return nil, &Error{Source: Source{File: path}, Problem: fmt.Sprintf("there is no such file, though %s names it", source)}
	}
	return all, err
}

// append reads one more file, if it exists.
func (v *Values) append(all []*file, files Files, path string) ([]*file, error) {
	content, err := files.Read(path)
	if isMissing(err) {
		return all, nil
	}
	if err != nil {
		return nil, &Error{Source: Source{File: path}, Problem: err.Error(), Cause: err}
	}
	f, err := parse(path, content.Data, v.settings)
	if err != nil {
		return nil, err
	}
	return append(all, f), nil
}

// noteOutOfReach records that the user's file may exist but cannot be read. It records a warning,
// because the file may name another store. If the administrator has hidden the home directory from this
// service, it records only a note.
func (v *Values) noteOutOfReach(path string, err error) {
	if isHiddenOnPurpose(path) {
		v.Notes = append(v.Notes, path+": a directory above it is hidden from this process, so it is taken as missing")
		return
	}
	v.Warnings = append(v.Warnings, fmt.Sprintf("%v; its settings do not count", err))
}
