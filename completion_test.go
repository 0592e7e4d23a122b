package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// The shells themselves, on a terminal: what is typed, with a tab where the user presses it, and the arguments that golock
// gets when the line is entered.
func TestCompletionInShells(t *testing.T) {
	for _, shell := range []struct {
		name   string
		argv   []string
		rc     string // the file that it reads, below its home
		script string
	}{
		{"bash", []string{"bash", "--rcfile", "rc", "-i"}, "rc", "PS1='ready> '\nsource <(golock completion bash)\n"},
		{"bash-completion", []string{"bash", "--rcfile", "rc", "-i"}, "rc", "source /usr/share/bash-completion/bash_completion\nPS1='ready> '\nsource <(golock completion bash)\n"},
		{"zsh", []string{"zsh", "-i"}, ".zshrc", "PS1='ready> '\nautoload -U compinit\ncompinit -u\nsource <(golock completion zsh)\n"},
		{"zsh-fpath", []string{"zsh", "-i"}, ".zshrc", "PS1='ready> '\nmkdir fp; golock completion zsh >fp/_golock\nfpath=(~/fp $fpath)\nautoload -U compinit\ncompinit -u\n"},
		{"fish", []string{"fish", "-i"}, ".config/fish/config.fish", "function fish_prompt; echo 'ready> '; end\nfunction fish_greeting; end\ngolock completion fish | source\n"},
	} {
		t.Run(shell.name, func(t *testing.T) {
			if _, err := exec.LookPath(shell.argv[0]); err != nil {
				t.Fatalf("%v; run: make deps", err)
			}
			home := t.TempDir()
			in := func(name string) string { return filepath.Join(home, name) }
			file := func(name string, mode os.FileMode, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(in(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(in(name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			real, err := exec.LookPath("golock")
			if err != nil {
				t.Fatal(err)
			}
			store := "local://" + in("store")
			id := strings.TrimSpace(hold(t, real, store, "nightly"))
			hold(t, real, store, "data load")
			file("bin/golock", 0o755, fmt.Sprintf("#!/bin/sh\ncase $1 in complete | completion) exec '%s' \"$@\" ;; esac\n"+
				"text=; for arg; do text=\"$text[$arg]\"; done; echo \"$text\" >>'%s'\n", real, in("log")))
			file("bin/heavy-work", 0o755, "#!/bin/sh\n")
			file("report.jsonl", 0o644, "")
			file("input.txt", 0o644, "")
			file(shell.rc, 0o644, shell.script)

			cmd := exec.Command(shell.argv[0], shell.argv[1:]...)
			cmd.Dir = home
			cmd.Env = []string{"HOME=" + home, "PATH=" + in("bin") + ":" + os.Getenv("PATH"), "TERM=dumb", "GOLOCK_STORE=" + store, "LC_ALL=C.UTF-8"}
			terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
			if err != nil {
				t.Fatal(err)
			}
			screen := watchTerminal(terminal)
			t.Cleanup(func() {
				cmd.Process.Kill()
				terminal.Close()
				cmd.Wait()
			})
			for _, tt := range []struct{ typed, want string }{
				{"golock ver\t", "[version]"},
				{"golock run --nam\tjob --no-w\ttrue", "[run][--name][job][--no-wait][true]"},
				{"golock run --name nig\ttrue", "[run][--name][nightly][true]"},
				{"golock run --name=nig\ttrue", "[run][--name=nightly][true]"},
				{"golock run --name dat\ttrue", "[run][--name][data load][true]"},
				{"golock ls nig\t", "[ls][nightly]"},
				{"golock release " + id[:6] + "\t", "[release][" + id + "]"},
				{"golock run --store redis+se\thost/m --name n true", "[run][--store][redis+sentinel://host/m][--name][n][true]"},
				{"golock run --store=redis+se\thost/m --name n true", "[run][--store=redis+sentinel://host/m][--name][n][true]"},
				{"golock run --on-lost w\t--replace=run\ttrue", "[run][--on-lost][warn][--replace=running][true]"},
				{"golock run --report rep\t--name n true", "[run][--report][report.jsonl][--name][n][true]"},
				{"golock run --name n heavy-w\t", "[run][--name][n][heavy-work]"},
				{"golock run --name n -- heavy-w\t", "[run][--name][n][--][heavy-work]"},
				{"golock run --name n -- cat inp\t", "[run][--name][n][--][cat][input.txt]"},
				{"golock run -n --name n cat -n inp\t", "[run][-n][--name][n][cat][-n][input.txt]"},
			} {
				if !screen.await("ready> ") {
					t.Fatalf("no prompt:\n%s", screen.text())
				}
				before := count(in("log"))
				screen.forget()
				io.WriteString(terminal, tt.typed+"\r")
				until := time.Now().Add(patienceForTests)
				for count(in("log")) == before && time.Now().Before(until) {
					time.Sleep(5 * time.Millisecond)
				}
				text, _ := os.ReadFile(in("log"))
				all := strings.Split(strings.TrimSpace(string(text)), "\n")
				if got := all[len(all)-1]; count(in("log")) != before+1 || got != tt.want {
					t.Errorf("%q became %s, want %s; the screen:\n%s", tt.typed, got, tt.want, screen.text())
				}
			}
		})
	}
}

func count(file string) int {
	text, _ := os.ReadFile(file)
	return strings.Count(string(text), "\n")
}

// hold takes a lock until the end of the test and gives its ID.
func hold(t *testing.T, golock, store, name string) string {
	t.Helper()
	cmd := exec.Command(golock, "run", "--store", store, "--name", name, "--", "sh", "-c", `echo "$GOLOCK_ID"; read end`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	id, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// shownText collects what a terminal shows.
type shownText struct {
	read chan []byte
	all  string
}

func watchTerminal(terminal io.Reader) *shownText {
	s := &shownText{read: make(chan []byte, 1000)}
	go func() {
		defer close(s.read)
		for {
			b := make([]byte, 4096)
			n, err := terminal.Read(b)
			if err != nil {
				return
			}
			s.read <- b[:n]
		}
	}()
	return s
}

func (s *shownText) await(text string) bool {
	timeout := time.After(patienceForTests)
	for !strings.Contains(s.all, text) {
		select {
		case b, ok := <-s.read:
			if !ok {
				return false
			}
			s.all += string(b)
		case <-timeout:
			return false
		}
	}
	return true
}

func (s *shownText) forget() { s.all = "" }

func (s *shownText) text() string {
	for {
		select {
		case b, ok := <-s.read:
			if !ok {
				return s.all
			}
			s.all += string(b)
		default:
			return s.all
		}
	}
}
