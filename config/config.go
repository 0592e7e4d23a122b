// Package config finds out what the user wants: it puts flags, environment and
// files in order and gives typed values. It never prints, and reports every value
// with its source. It knows two settings: "name" selects a [lock."NAME"] table,
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
	List     Kind = "an array of strings in quotes or integers" // or one of these
)

// Setting declares one setting.
type Setting struct {
	Key        string // the long flag without dashes, and the key in a file
	Env        string // the environment variable; "": none
	Kind       Kind
	Default    string
	Group      string // settings with the same group are alternatives
	NotInFile  bool
	EmptyIsSet bool // an empty variable is a value; others count as unset
}

// Layers is everything that Resolve reads.
type Layers struct {
	Flags  map[string][]string              // by key; of several texts the last counts, except for a List
	Lookup func(name string) (string, bool) // gives a variable, as os.LookupEnv
	Files  Files
}

// Source says where a value comes from: a file if File is set, else a variable
// if Env is set, else a flag.
type Source struct {
	Key, Env, File string

	line func() int // finds the line in the file, from 1; nil: it is about no line
}

// FromFlag reports whether the source is the command line.
func (s Source) FromFlag() bool { return s.File == "" && s.Env == "" }

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
	Cause   error // of the problem, if a system call has failed; else nil
}

// HostFailed reports whether the host could not read a file now: nothing is wrong with the file.
func (e *Error) HostFailed() bool { return isHostFailure(e.Cause) }

func isHostFailure(err error) bool {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EIO, syscall.ENOMEM} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

func (e *Error) Error() string { return e.Source.String() + ": " + e.Problem }

func (e *Error) Unwrap() error { return e.Cause }

// Resolve reads all sources. The strongest source that gives a setting of a
// group hides the group of all weaker ones; what one source gives stays together.
// Every file is checked in full. Flags and variables are checked when Values is
// asked for them. The error is an *Error.
func Resolve(settings []Setting, from Layers) (*Values, error) {
	v := &Values{settings: settings, found: make([]value, len(settings))}
	v.add(func(s Setting) value { return value{from.Flags[s.Key], Source{Key: s.Key}} })
	v.add(func(s Setting) value {
		if text, ok := from.Lookup(s.Env); text != "" || ok && s.EmptyIsSet {
			return value{[]string{text}, Source{Key: s.Key, Env: s.Env}}
		}
		return value{}
	})
	files, err := v.load(from.Files)
	if err != nil {
		return nil, err
	}
	if _, ok := v.Given("name"); ok {
		for _, f := range files {
			v.add(func(s Setting) value { return f.locks[v.Text("name")][s.Key] })
		}
	}
	for _, f := range files {
		v.add(func(s Setting) value { return f.defaults[s.Key] })
	}
	return v, nil
}

// CheckVariable judges a variable whose name begins with prefix, as those of all settings do. It reports
// whether the variable is a setting. The error, an *Error, says that it is likely meant as one: it has the
// name of a flag that has no variable, or misspells a setting. Any other variable is somebody else's
// (Kubernetes sets GOLOCK_PORT for a Service called golock, images set GOLOCK_VERSION).
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

// add adds the next weaker source, which gives a value without texts where it has none.
func (v *Values) add(get func(Setting) value) {
	closed := map[string]bool{} // groups that a stronger source has given
	for i, s := range v.settings {
		closed[s.Group] = closed[s.Group] || s.Group != "" && v.found[i].texts != nil
	}
	for i, s := range v.settings {
		if v.found[i].texts == nil && !closed[s.Group] {
			v.found[i] = get(s)
		}
	}
}

// load reads the files that apply, the strongest first.
func (v *Values) load(files Files) (all []*file, err error) {
	if source, explicit := v.Given("config"); explicit {
		return v.loadExplicit(files, source)
	}
	path, err := files.UserFile()
	if isHostFailure(err) {
		return nil, &Error{Source: Source{File: files.Users.Passwd}, Problem: err.Error(), Cause: err}
	}
	if err != nil {
		v.Warnings = append(v.Warnings, err.Error())
	}
	if path != "" {
		if all, err = v.append(all, files, path); isOutOfReach(err) {
			v.noteOutOfReach(path, err)
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	return v.append(all, files, files.System)
}

// loadExplicit reads the only file, which a flag or a variable names.
func (v *Values) loadExplicit(files Files, source Source) ([]*file, error) {
	path := v.Text("config")
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

// append reads one more file, if it is there.
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

// noteOutOfReach keeps that the user's file is not read though it may be there. It may name another store, so
// this is a warning, unless somebody has hidden the home directory from this service.
func (v *Values) noteOutOfReach(path string, err error) {
	if isHiddenOnPurpose(path) {
		v.Notes = append(v.Notes, path+": a directory above it is hidden from this process, so it is taken as missing")
		return
	}
	v.Warnings = append(v.Warnings, fmt.Sprintf("%v; its settings do not count", err))
}
