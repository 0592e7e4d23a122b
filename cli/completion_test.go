//go:build integration

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golock/test/testkit"
)

// typedLine is what is typed, with a tab where the user presses it, and the
// arguments that golock gets when the line is entered. ID is that of a holder.
type typedLine struct{ typed, want string }

var typedLines = []typedLine{
	{"golock ver\t", "[version]"},
	{"golock run --nam\tjob --no-w\ttrue", "[run][--name][job][--no-wait][true]"},
	{"golock run --name nig\ttrue", "[run][--name][nightly][true]"},
	{"golock run --name=nig\ttrue", "[run][--name=nightly][true]"},
	{"golock run --name dat\ttrue", "[run][--name][data load][true]"},
	{"golock ls nig\t", "[ls][nightly]"},
	{"golock release ID6\t", "[release][ID]"},
	{"golock run --store redis+se\thost/m --name n true", "[run][--store][redis+sentinel://host/m][--name][n][true]"},
	{"golock run --store=redis+se\thost/m --name n true", "[run][--store=redis+sentinel://host/m][--name][n][true]"},
	{"golock run --on-lost w\t--replace=run\ttrue", "[run][--on-lost][warn][--replace=running][true]"},
	{"golock run --report rep\t--name n true", "[run][--report][report.jsonl][--name][n][true]"},
	{"golock run --name n heavy-w\t", "[run][--name][n][heavy-work]"},
	{"golock run --name n -- heavy-w\t", "[run][--name][n][--][heavy-work]"},
	{"golock run --name n -- cat inp\t", "[run][--name][n][--][cat][input.txt]"},
	{"golock run -n --name n cat -n inp\t", "[run][-n][--name][n][cat][-n][input.txt]"},
}

// hostileNames are completed to themselves and to nothing that the shell would run.
var hostileNames = []string{
	"a$(touch OWNED)", "b`touch OWNED`", "c'; touch OWNED; '", `p"; touch OWNED; "`, "e; touch OWNED;", "f|touch OWNED", "g\\$(touch OWNED)",
	"i{1,2}", "j*", `k\"; touch OWNED; \"`, `l\'; touch OWNED; \'`, "m!!", "q ~", "o\u202e",
}

var interactiveShells = []struct {
	name   string
	argv   []string
	rc     string // the file that it reads, below its home
	script string
	// Its completion of names is that of the shell before it.
	sameNames bool
}{
	{"bash", []string{"bash", "--rcfile", "rc", "-i"}, "rc",
		"PS1='ready> '\nsource <(golock completion bash)\n", false},
	{"bash-completion", []string{"bash", "--rcfile", "rc", "-i"}, "rc",
		"source /usr/share/bash-completion/bash_completion\nPS1='ready> '\nsource <(golock completion bash)\n", true},
	{"zsh", []string{"zsh", "-i"}, ".zshrc",
		"PS1='ready> '\nautoload -U compinit\ncompinit -u\nsource <(golock completion zsh)\n", false},
	{"zsh-fpath", []string{"zsh", "-i"}, ".zshrc",
		"PS1='ready> '\nmkdir fp; golock completion zsh >fp/_golock\nfpath=(~/fp $fpath)\nautoload -U compinit\ncompinit -u\n", true},
	{"fish", []string{"fish", "-i"}, ".config/fish/config.fish",
		"function fish_prompt; echo 'ready> '; end\nfunction fish_greeting; end\ngolock completion fish | source\n", false},
}

// hostileLines asks for each hostile name: all of them without quotes, half of them with each quote.
func hostileLines() (lines []typedLine) {
	for i, quote := range []string{"", "'", `"`} {
		for j, name := range hostileNames {
			if i == 0 || j%2 == i%2 {
				lines = append(lines, typedLine{"golock ls " + quote + name[:1] + "\t", "[ls][" + name + "]"})
			}
		}
	}
	return lines
}

// The shells themselves, on a terminal.
func TestCompletionInShells(t *testing.T) {
	names := hostileLines()
	for _, shell := range interactiveShells {
		t.Run(shell.name, func(t *testing.T) {
			t.Parallel()
			testkit.Need(t, shell.argv[0])
			lines := typedLines
			if !shell.sameNames || testkit.Deep() {
				lines = slices.Concat(typedLines, names)
			}
			s := testkit.New(t, "")
			holder := func(name string) *testkit.Process {
				return s.Lock(name, "--", "sh", "-c", `echo "$GOLOCK_ID"; read end`).Start()
			}
			id := holder("nightly").Line()
			for _, name := range append(hostileNames, "data load") {
				holder(name).Line()
			}
			// Without this directory fish reads all manual pages in the background.
			for _, dir := range []string{"bin", ".local/share/fish/generated_completions", filepath.Dir(shell.rc)} {
				testkit.Must(t, os.MkdirAll(s.Path(dir), 0o755))
			}
			s.Script("bin/golock", fmt.Sprintf("#!/bin/sh\ncase $1 in complete | completion) exec '%s' \"$@\" ;; esac\n"+
				"for arg; do printf '[%%s]' \"$arg\"; done >>log; echo >>log; echo \"ran $(wc -l <log).\"\n", testkit.Golock))
			s.Script("bin/heavy-work", "#!/bin/sh\n")
			for name, text := range map[string]string{"report.jsonl": "", "input.txt": "", shell.rc: shell.script} {
				testkit.Must(t, os.WriteFile(s.Path(name), []byte(text), 0o644))
			}

			p := s.Exec(shell.argv...).By("env", "HOME="+s.Dir, "PATH="+s.Path("bin")+":/usr/local/bin:/usr/bin:/bin",
				"TERM=dumb", "GOLOCK_STORE="+s.Store, "LC_ALL=C.UTF-8").OnTerminal(200, 50)
			p.Shows("ready> ")
			fill := strings.NewReplacer("ID6", id[:6], "ID", id)
			for i, line := range lines {
				p.Key(fill.Replace(line.typed) + "\r")
				p.Shows(fmt.Sprintf(`ran %d\.`, i+1))
				all := strings.Split(strings.TrimSpace(s.AwaitFile("log")), "\n")
				if got, want := all[len(all)-1], fill.Replace(line.want); got != want {
					t.Errorf("%q became %s, want %s", line.typed, got, want)
				}
				p.Shows("ready> ") // the one after the command, not one that completion drew again
			}
			p.Key("exit\r")
			p.Expects(0)
			if s.Exists("OWNED") {
				t.Error("a name was run")
			}
		})
	}
}
