// Package execvp finds and executes programs as execvp(3) does.
package execvp

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Do finds a program and executes it. Like execvp(3) it lets the shell run a file whose format the
// kernel does not know.
func Do(argv []string, execute func(path string, argv []string) error) error {
	path, err := Find(argv[0])
	if err == nil {
		err = execute(path, argv)
	}
	if err == unix.ENOEXEC {
		err = execute("/bin/sh", append([]string{"/bin/sh", path}, argv[1:]...))
	}
	return err
}

// Find looks a program up along PATH. A name with a slash is a path. An unset PATH means
// /bin:/usr/bin. An empty word in PATH means the working directory. A file that may not be executed
// does not end the search. If no other file is found, the error is EACCES.
func Find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if name == "" {
		return "", unix.ENOENT
	}
	notFound := unix.ENOENT
	for dir := range strings.SplitSeq(searchPath(), ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		var st unix.Stat_t
		err := unix.Stat(file, &st)
		isFile := err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
		if isFile && unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS) == nil {
			return file, nil
		}
		if err == nil || err == unix.EACCES {
			notFound = unix.EACCES
		}
	}
	return "", notFound
}

// searchPath returns the directories in which Find looks, separated by colons.
func searchPath() string {
	if path, set := os.LookupEnv("PATH"); set {
		return path
	}
	return "/bin:/usr/bin"
}
