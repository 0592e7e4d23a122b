package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (see the Makefile).
var version string

// versionCommand is the grammar of golock version.
type versionCommand struct{}

func (versionCommand) run(out *printer) int {
	if _, err := fmt.Fprintf(os.Stdout, "golock %s (%s %s/%s)\n", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH); err != nil {
		return out.exit(outputError{err})
	}
	return 0
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
