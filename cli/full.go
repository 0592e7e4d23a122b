package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golock/internal/entry"
	"golock/signals"
)

// Packages have two programs in one directory, libexec/golock, and bin/golock is a link to the lean
// one. The lean program starts faster, because it has no clients of servers and no parser for the whole
// command line. If it needs either, it executes the full program of the same version with the same
// arguments. It does so before it catches signals, so that the full program finds everything as the
// caller left it.

// becomeFull executes the full program in place of this one. It returns only if it fails. what begins the error: it
// says what needs the full program.
func becomeFull(what string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%s the full program, which is found by /proc: %w", what, err)
	}
	path := filepath.Join(filepath.Dir(self), "golock-"+versionText())
	err = become(path)
	if errors.Is(err, syscall.ENOENT) {
		becomeInstalled(filepath.Join(filepath.Dir(self), "../../bin/golock"))
	}
	return fmt.Errorf("%s the full program: cannot execute %s: %w; install the package golock %s again", what, path, err, versionText())
}

// becomeInstalled executes the golock of a version that was installed after this process started. dpkg has removed
// the full program of this version then. No lock was used yet, so the other version can do everything.
// It returns if this golock is still the installed one, or if there is none.
func becomeInstalled(path string) {
	installed, err := os.Stat(path)
	if err != nil {
		return
	}
	running, err := os.Stat(runningProgram)
	if err != nil || os.SameFile(installed, running) {
		return
	}
	_ = become(path)
}

// become executes a program of this package in place of this one.
func become(path string) error {
	program, err := checkOwner(path)
	if err != nil {
		return err
	}
	return signals.Exec(program, os.Args, entry.Environ())
}

// leanWatchdog returns the path of the lean program beside this full program, or "". A watchdog needs no
// clients, and the lean program starts sooner and takes half the memory.
func leanWatchdog() string {
	self, err := os.Executable()
	if err != nil || filepath.Base(self) != "golock-"+versionText() {
		return ""
	}
	program, _ := checkOwner(filepath.Join(filepath.Dir(self), "lean-"+versionText()))
	return program
}

// runningProgram is a path to the program of this process. It stays valid when the file has been removed.
const runningProgram = "/proc/self/exe"

// checkOwner resolves the symbolic links of path. It fails if a user who is not trusted could have
// put the file there. root, the owner of this program and the caller are trusted: they could replace
// this program anyway.
func checkOwner(path string) (file string, err error) {
	file, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(runningProgram, &st); err != nil {
		return "", err
	}
	trusted := []uint32{0, st.Uid, uint32(os.Geteuid())}
	for _, checked := range []string{file, filepath.Dir(file), path, filepath.Dir(path)} {
		err := syscall.Lstat(checked, &st)
		switch {
		case err != nil:
			return "", err
		case !slices.Contains(trusted, st.Uid):
			return "", fmt.Errorf("%s belongs to user %d, who could write anything into it: chown it", checked, st.Uid)
		case st.Mode&0o022 != 0 && st.Mode&syscall.S_IFMT != syscall.S_IFLNK:
			return "", fmt.Errorf("other users can write to %s (mode %04o): chmod go-w it", checked, st.Mode&0o7777)
		}
	}
	return file, nil
}
