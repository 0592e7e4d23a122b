package execvp

import (
	"bufio"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Explain adds to the kernel's error why a program could not be executed. It returns "" if it knows
// no more than the error says.
func Explain(name string, err error) string {
	var st unix.Stat_t
	path, findErr := Find(name)
	exists := findErr == nil && unix.Stat(path, &st) == nil
	switch {
	case errors.Is(err, unix.EAGAIN):
		return "there are too many processes: raise the limit of processes (ulimit -u) or of tasks (pids.max of the cgroup)"
	case errors.Is(err, unix.EMFILE):
		return "raise the limit of open files, ulimit -n"
	case exists && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "it is a directory"
	case exists && errors.Is(err, unix.EACCES) && st.Mode&0o111 == 0:
		return "it is not executable: use chmod +x"
	case exists && errors.Is(err, unix.ENOENT) && st.Mode&unix.S_IFMT == unix.S_IFREG:
		return explainInterpreter(path)
	case !exists && name != "" && errors.Is(err, unix.ENOENT):
		return explainMissing(name)
	}
	return ""
}

// explainMissing says what the user may have meant by the name of a program that does not exist.
func explainMissing(name string) string {
	switch {
	case slices.Contains(strings.Fields(builtins), name):
		return "it is a command of the shell: use sh -c '...'"
	case strings.ContainsAny(name, " \t\n&|;<>"):
		return "a line for the shell is run with sh -c '...'"
	case strings.Contains(name, "/"):
		return ""
	case strings.Contains(name, "="):
		return "a variable is set with env NAME=VALUE COMMAND"
	}
	const longest = 200
	dirs := searchPath()
	if len(dirs) > longest {
		dirs = dirs[:longest] + "..."
	}
	return "it is in no directory of PATH=" + dirs
}

// builtins are commands that only a shell has, on most systems.
const builtins = ". : alias bg cd command declare eval exec exit export fg hash jobs local read readonly " +
	"return set shift shopt source trap type ulimit umask unalias unset wait"

// explainInterpreter explains ENOENT for a file that exists: the interpreter that the file names is
// missing.
func explainInterpreter(path string) string {
	const longest = 256 // bytes of the first line that the kernel reads
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	first, _ := bufio.NewReaderSize(f, longest).ReadSlice('\n')
	line, isScript := strings.CutPrefix(strings.TrimSuffix(string(first), "\n"), "#!")
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
