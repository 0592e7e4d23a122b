//go:build integration && !lean

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golock/test/testkit"
)

// The formatters of manual pages find nothing to say about golock(1).
func TestManualIsWellFormed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "golock.1")
	testkit.Must(t, os.WriteFile(file, []byte(page(t)), 0o644))
	for _, argv := range [][]string{
		{"groff", "-man", "-ww", "-z", "-Tutf8", file},
		{"mandoc", "-Tlint", "-Wwarning", file},
		{"man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", file},
	} {
		testkit.Need(t, argv[0])
		var said bytes.Buffer
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = &said
		if argv[0] == "mandoc" { // its findings are its output
			cmd.Stdout = &said
		}
		if err := cmd.Run(); err != nil || said.Len() > 0 {
			t.Errorf("%q: %v\n%s", argv, err, &said)
		}
	}
	// What is typed is what is shown: no dash has become a hyphen, no quote a curly one.
	shown, err := exec.Command("mandoc", "-Tutf8", "-Owidth=200", file).Output()
	testkit.Must(t, err)
	plain := regexp.MustCompile(".\b").ReplaceAllString(string(shown), "")
	for _, line := range []string{
		"golock run --name gpu --max 4 -- sh -c 'CUDA_VISIBLE_DEVICES=$GOLOCK_SLOT exec train'",
		"golock break --id $(golock ls --json deploy | jq -r '.[0].id')",
		"*/5 * * * * golock run --name sync -n -E 0 --time-limit 1h -- /usr/local/bin/sync-accounts",
	} {
		if !strings.Contains(plain, line) {
			t.Errorf("golock(1) does not show %q", line)
		}
	}
}
