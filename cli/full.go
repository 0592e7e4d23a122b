package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golock/internal/entry"
	"golock/signals"
)

// Packages have two programs. The lean one, bin/golock, has no clients of servers and no
// grammar of the command line, so that a local lock does not pay for them. Where one is
// needed it executes the full program of the same version with the same arguments, before
// it catches signals: the full program finds everything as the caller left it.

// becomeFull returns only if it fails, with an error that says what needs the full program.
func becomeFull(what string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("%s the full program, which is found by /proc: %w", what, err)
	}
	path := filepath.Join(filepath.Dir(self), "../libexec/golock/golock-"+versionText())
	program, err := checkOwner(self, path)
	if err == nil {
		err = signals.Exec(program, os.Args, entry.Environ())
	}
	return fmt.Errorf("%s the full program: cannot execute %s: %w; install the package golock %s again", what, path, err, versionText())
}

// leanWatchdog is the lean program beside the full one, or "". A watchdog needs no clients: the
// lean one starts sooner and takes half the memory.
func leanWatchdog() string {
	self, err := os.Executable()
	if err != nil || filepath.Base(self) != "golock-"+versionText() {
		return ""
	}
	program, _ := checkOwner(self, filepath.Join(filepath.Dir(self), "watchdog-"+versionText()))
	return program
}

// checkOwner gives the file that other leads to, unless somebody else could have put it there.
// Trusted are those who could replace this program anyway: root, its owner, and the caller.
func checkOwner(self, other string) (file string, err error) {
	var st syscall.Stat_t
	if file, err = filepath.EvalSymlinks(other); err == nil {
		err = syscall.Stat(self, &st)
	}
	trusted := []uint32{0, st.Uid, uint32(os.Geteuid())}
	for _, path := range []string{file, filepath.Dir(file), other, filepath.Dir(other)} {
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		switch {
		case err != nil:
			return "", err
		case !slices.Contains(trusted, st.Uid):
			return "", fmt.Errorf("%s belongs to user %d, who could write anything into it: chown it", path, st.Uid)
		case st.Mode&0o022 != 0 && st.Mode&syscall.S_IFMT != syscall.S_IFLNK:
			return "", fmt.Errorf("other users can write to %s (mode %04o): chmod go-w it", path, st.Mode&0o7777)
		}
	}
	return file, nil
}
