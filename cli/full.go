package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golock/config"
	"golock/internal/entry"
	"golock/locks/open"
	"golock/signals"
)

// Packages have two programs. The lean one, bin/golock, has no clients of servers,
// so that a local lock does not pay for them. For a store that needs one it becomes
// the full program of the same version, with the same arguments. That is before
// signals are caught: the full program finds all as the caller left it.

// fullProgram is where the full program is, from the directory of the lean one.
const fullProgram = "../libexec/golock/golock-"

// becomeFull executes the full program if the store of the settings needs it. It
// returns nil if not, an error if it cannot.
func becomeFull(v *config.Values) error {
	address, err := readAddress(v)
	if err != nil {
		return nil // openStore reports it
	}
	if _, err := open.Store(address.url); !errors.Is(err, open.ErrNotLinked) {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("a store on a server needs the full program, which is found by /proc: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), fullProgram+versionText())
	err = signals.Exec(path, os.Args, entry.Environ())
	return fmt.Errorf("a store on a server needs the full program: cannot execute %s: %w; install the package golock %s again", path, err, versionText())
}
