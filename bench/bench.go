package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed native/stamp.c
var stampSource []byte

// bench is one run of the harness.
type bench struct {
	*starter
	dir     string // temporary
	stamp   string // the command that runs under the locks
	golock  string // the program, lean
	full    string // what it becomes for a server's store
	log     string // what all programs print
	shell   *shell
	servers servers
	places  int
	used    map[string]lock // that a tool starts on again and again
	quick   bool
}

// failure is what a measurement that cannot go on panics with, as a test ends
// with Fatal. The runner recovers it.
type failure struct{ error }

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func get[T any](value T, err error) T {
	must(err)
	return value
}

// try runs what may fail.
func try(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			failed, is := p.(failure)
			if !is {
				panic(p)
			}
			err = failed.error
		}
	}()
	f()
	return nil
}

// errEnded is the error of a program that ended instead of holding or waiting.
var errEnded = errors.New("ended too early")

// newBench makes the temporary directory and builds what is measured. Without a
// golock it builds one as a release is built.
func newBench(golock string) *bench {
	dir := get(os.MkdirTemp("", "golock-bench-"))
	b := &bench{dir: dir, stamp: filepath.Join(dir, "stamp"), log: filepath.Join(dir, "output"), used: map[string]lock{}}
	err := try(func() {
		log := get(os.OpenFile(b.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600))
		defer log.Close()
		b.starter = newStarter(dir, log)
		compileC(b.stamp, stampSource)
		if golock == "" {
			const entry = "-ldflags=-s -w -E golock/internal/entry.start -X golock/cli.version=bench"
			lean := b.build("libexec/golock/lean-bench", "..", ".", entry, "-tags=lean")
			b.full = b.build("libexec/golock/golock-bench", "..", ".", entry)
			b.golock = filepath.Join(b.dir, "bin/golock")
			must(os.MkdirAll(filepath.Dir(b.golock), 0o755))
			must(os.Symlink(lean, b.golock))
		} else {
			b.golock = get(filepath.Abs(golock))
			b.full = b.golock
		}
	})
	if err != nil {
		b.close()
		must(err)
	}
	return b
}

// build gives a copy of what the linker has written, as an installation does.
// The linker's file lies in the cache in single pages, and its program starts up
// to half a millisecond later.
func (b *bench) build(name, dir, what string, flags ...string) string {
	const script = `what=$1; shift
		go build -trimpath -ldflags "-s -w" "$@" -o "$0.linked" "$what" && cp "$0.linked" "$0"`
	path := filepath.Join(b.dir, name)
	must(os.MkdirAll(filepath.Dir(path), 0o755))
	build := exec.Command("sh", append([]string{"-c", script, path, what}, flags...)...)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		must(fmt.Errorf("%s: %w\n%s", build, err, out))
	}
	return path
}

// interrupt ends all that is measured; then nothing can be measured any more.
func (b *bench) interrupt() { _ = b.cmd.Process.Kill() }

func (b *bench) close() {
	if b.shell != nil {
		b.shell.in.Close()
		_ = b.shell.cmd.Wait()
	}
	if b.starter != nil {
		b.starter.close()
	}
	b.servers.close()
	os.RemoveAll(b.dir)
}

// lastLine is the last that a program printed, to explain a failure.
func (b *bench) lastLine() string {
	data, _ := os.ReadFile(b.log)
	text := strings.TrimSpace(string(data))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// until asks again and again until the answer is yes. So events are ordered by
// what can be seen, never by time; the limit turns a hang into an error.
func (b *bench) until(what string, pause time.Duration, question func() (bool, error)) {
	var yes bool
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if yes, err = question(); err == nil && yes {
			return
		} else if errors.Is(err, errEnded) {
			must(err)
		}
	}
	must(fmt.Errorf("not seen within %v: %s (%w)", patience, what, err))
}
