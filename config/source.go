package config

import (
	"strconv"
	"strings"
)

// Source says where a value, or something wrong, comes from: a place in a file
// if File is set, else an environment variable if Env is set, else the flag.
type Source struct {
	Key  string // the setting; "" if the source is a file or a line as a whole
	Env  string // the environment variable
	File string // the path as it was opened
	Line int    // from 1; 0 if no line can be named
}

// FromFlag reports whether the source is the command line.
func (s Source) FromFlag() bool { return s.File == "" && s.Env == "" }

// String names the source the way a user would look for it: "--max",
// "GOLOCK_MAX", "/etc/golock.toml:7: max".
func (s Source) String() string {
	switch {
	case s.File != "":
		parts := []string{s.File}
		if s.Line > 0 {
			parts[0] += ":" + strconv.Itoa(s.Line)
		}
		if s.Key != "" {
			parts = append(parts, s.Key)
		}
		return strings.Join(parts, ": ")
	case s.Env != "":
		return s.Env
	default:
		return "--" + s.Key
	}
}

// Error is what every function of this package returns for something that the
// user has to change; ParseDuration and ParseInt, which know no source, are the
// exception.
type Error struct {
	Source  Source
	Problem string // what is wrong and what to do about it, without the source
}

// Error returns "<source>: <problem>".
func (e *Error) Error() string { return e.Source.String() + ": " + e.Problem }

// FromFlag reports whether the command line is wrong, as opposed to a file or
// the environment; the two have different exit codes.
func (e *Error) FromFlag() bool { return e.Source.FromFlag() }
