package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// shellScript runs the lines that it reads, as a user's script does: bash has
// the script at descriptor 255, so that its children's tables have 256 slots.
const shellScript = `while IFS= read -r line; do
	begun=$EPOCHREALTIME
	$line </dev/null >&2
	echo "$begun $EPOCHREALTIME $?"
done
`

// shell is a bash that runs a script with the environment of the user.
type shell struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func (b *bench) startShell() *shell {
	path := filepath.Join(b.dir, "script")
	must(os.WriteFile(path, []byte(shellScript), 0o600))
	s := &shell{cmd: exec.Command("bash", path)}
	s.cmd.Env = append(os.Environ(), "LC_ALL=C") // a decimal point in the times
	s.in, s.out = get(s.cmd.StdinPipe()), get(s.cmd.StdoutPipe())
	must(s.cmd.Start())
	return s
}

// run gives the ms that a command took. Its words have no blanks.
func (s *shell) run(argv []string) float64 {
	fmt.Fprintln(s.in, strings.Join(argv, " "))
	var begun, ended float64
	var code int
	if _, err := fmt.Fscan(s.out, &begun, &ended, &code); err != nil || code != 0 {
		must(fmt.Errorf("%q in a shell ended with %d, %w", argv, code, err))
	}
	return (ended - begun) * 1e3
}
