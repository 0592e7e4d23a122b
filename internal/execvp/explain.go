package execvp

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Explain says more about a program that could not be executed than the kernel's error does; "":
// there is nothing to add.
func Explain(name string, err error) string {
	if !errors.Is(err, unix.ENOENT) || name == "" {
		return ""
	}
	if path, err := Find(name); err == nil {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return explainInterpreter(path)
		}
	}
	if isBuiltin(name) {
		return "it is a command of the shell: use sh -c '...'"
	}
	if strings.ContainsAny(name, " \t\n&|;<>") {
		return "a line for the shell is run with sh -c '...'"
	}
	return ""
}

// isBuiltin reports whether a command is one that only a shell has, on most systems.
func isBuiltin(name string) bool {
	switch name {
	case ".", ":", "alias", "bg", "cd", "command", "declare", "eval", "exec", "exit", "export", "fg", "hash", "jobs", "local", "read",
		"readonly", "return", "set", "shift", "shopt", "source", "trap", "type", "ulimit", "umask", "unalias", "unset", "wait":
		return true
	}
	return false
}

// explainInterpreter says why a file that is there cannot be found: what would execute it is missing.
func explainInterpreter(path string) string {
	const longest = 256 // of the first line, to the kernel
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	first, _ := io.ReadAll(io.LimitReader(f, longest))
	first, _, _ = bytes.Cut(first, []byte("\n"))
	line, isScript := strings.CutPrefix(string(first), "#!")
	if !isScript {
		return "the file is there, but not the loader or interpreter that it needs"
	}
	line = strings.TrimLeft(line, " \t")
	if end := strings.IndexAny(line, " \t"); end >= 0 {
		line = line[:end]
	}
	text := "its interpreter " + strconv.Quote(line) + " is not there"
	if strings.HasSuffix(line, "\r") {
		text += ": the first line ends in CR LF, make it end in LF"
	}
	return text
}
