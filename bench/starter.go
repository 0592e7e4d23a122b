package main

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed native/starter.c
var starterSource []byte

// patience is how long a process may take to end. One that hangs is killed, and
// its exit code is an error then.
const patience = 2 * time.Minute

// starter is the process from which all programs that are measured start;
// native/starter.c says why.
type starter struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

// process is a program that the starter has started.
type process struct {
	*starter
	pid   int
	argv  []string
	begun float64 // ms on CLOCK_MONOTONIC, before the fork
}

// result is what became of it. CPU time includes the descendants that were
// waited for.
type result struct {
	ended, cpu float64 // ms
	rss        float64 // MiB, the largest
	code       int     // 128+N for signal N
}

// cronEnvironment is what cron gives to a job: five variables.
func cronEnvironment(home string) []string {
	return []string{"HOME=" + home, "LOGNAME=bench", "SHELL=/bin/sh", "PATH=/usr/bin:/bin", "LANG=C"}
}

// newStarter compiles the starter in dir and starts it. Programs print to log.
func newStarter(dir string, log *os.File) *starter {
	path := filepath.Join(dir, "starter")
	compileC(path, starterSource)
	s := &starter{cmd: exec.Command(path)}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stderr = cronEnvironment(dir), dir, log
	// Ctrl-C is for the harness only; kill -9 of that ends all.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	s.in, s.out = get(s.cmd.StdinPipe()), get(s.cmd.StdoutPipe())
	must(s.cmd.Start())
	return s
}

// compileC makes a static program of one file.
func compileC(path string, source []byte) {
	build := exec.Command("gcc", "-x", "c", "-O2", "-Wall", "-static", "-o", path, "-")
	build.Stdin = bytes.NewReader(source)
	if out, err := build.CombinedOutput(); err != nil {
		must(fmt.Errorf("compiling %s: %w\n%s", filepath.Base(path), err, out))
	}
}

// answer is struct answer of native/starter.c.
type answer struct{ PID, Begun, Ended, Status, CPU, RSS int64 }

// request sends requests and reads the answers meanwhile.
func (s *starter) request(op byte, payloads ...string) []answer {
	var requests []byte
	for _, payload := range payloads {
		requests = binary.NativeEndian.AppendUint32(requests, uint32(op))
		requests = binary.NativeEndian.AppendUint32(requests, uint32(len(payload)))
		requests = append(requests, payload...)
	}
	go s.in.Write(requests) // an error is seen below
	answers := make([]answer, len(payloads))
	if err := binary.Read(s.out, binary.NativeEndian, answers); err != nil {
		must(fmt.Errorf("the starter has ended: %w", err))
	}
	return answers
}

// start starts commands as fast as one process can: all requests are there
// before the first is read.
func (s *starter) start(commands ...[]string) (all []*process) {
	var payloads []string
	for _, argv := range commands {
		payloads = append(payloads, strings.Join(argv, "\x00")+"\x00")
	}
	for i, a := range s.request('s', payloads...) {
		if a.PID <= 0 {
			must(fmt.Errorf("fork: %w", unix.Errno(-a.PID)))
		}
		all = append(all, &process{s, int(a.PID), commands[i], float64(a.Begun) / 1e6})
	}
	return all
}

// wait returns when the process has ended.
func (p *process) wait() result {
	kill := time.AfterFunc(patience, func() { _ = unix.Kill(p.pid, unix.SIGKILL) })
	defer kill.Stop()
	a := p.request('w', strconv.Itoa(p.pid)+"\x00")[0]
	if a.PID <= 0 {
		must(fmt.Errorf("waiting for %q: %w", p.argv, unix.Errno(-a.PID)))
	}
	status := unix.WaitStatus(a.Status)
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return result{float64(a.Ended) / 1e6, float64(a.CPU) / 1e3, float64(a.RSS) / 1024, code}
}

// succeed waits and makes anything but exit code 0 an error.
func (p *process) succeed() result {
	r := p.wait()
	if r.code != 0 {
		must(fmt.Errorf("%q ended with %d", p.argv, r.code))
	}
	return r
}

// gone tells whether the process has ended: it is a zombie until wait.
func (p *process) gone() bool {
	state, _ := statOf(p.pid)
	return state == "" || state == "Z"
}

// endAll kills and reaps everything that the starter has started, orphans that
// came to it included. A child's number is not given away before it is reaped.
func (s *starter) endAll() {
	for {
		for _, pid := range childrenOf(s.cmd.Process.Pid) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if s.request('r', "")[0].PID < 0 {
			return
		}
		time.Sleep(time.Millisecond) // killed, not yet dead
	}
}

func (s *starter) close() {
	_ = try(s.endAll)
	s.in.Close()
	_ = s.cmd.Wait()
}
