package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golock/cli/term"
)

// version is set by the linker (see the Makefile).
var version string

type versionCommand struct{}

func (*versionCommand) run(*term.Printer) error {
	return printOut("golock " + buildText() + "\n")
}

// buildText names version, Go version and platform.
func buildText() string {
	return fmt.Sprintf("%s (%s %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
