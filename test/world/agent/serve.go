package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Lines from the host:
//
//	CALL run SCRIPT ARG...   runs /world/SCRIPT; answered by its output, line by line, and its exit code
//	CALL lives               answered by the tokens of all members that live
//
// Lines to the host: "CALL | TEXT", "CALL exit CODE", "CALL lives TOKEN...", and without a call "hello BOOT",
// "begin TOKEN" and "end TOKEN".
type agent struct {
	port *os.File

	mu      sync.Mutex // guards the fields below, and makes lines of the port whole
	members []string   // the tokens of those that live
}

// serve serves the host on a serial port until the port fails.
func serve(path string) error {
	port, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if err := makeRaw(port); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		return err
	}
	a := &agent{port: port}
	go a.watch(listener)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	a.say("hello", strings.TrimSpace(string(boot)))
	for lines := bufio.NewScanner(port); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		words := strings.Fields(lines.Text())
		switch {
		case len(words) > 2 && words[1] == "run":
			go a.run(words[0], words[2], words[3:])
		case len(words) == 2 && words[1] == "lives":
			a.mu.Lock()
			alive := slices.Clone(a.members)
			a.mu.Unlock()
			a.say(words[0], append([]string{"lives"}, alive...)...)
		}
	}
}

// makeRaw makes a port pass bytes as they are.
func makeRaw(port *os.File) error {
	t, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cc[unix.VMIN] = 1
	return unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, t)
}

// say writes one line to the host.
func (a *agent) say(first string, words ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintln(a.port, strings.Join(append([]string{first}, words...), " "))
}

// watch tells the host of the members that begin and end.
func (a *agent) watch(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			r := bufio.NewReader(conn)
			text, err := r.ReadString('\n')
			if err != nil {
				return
			}
			token := strings.TrimSpace(text)
			a.mu.Lock()
			a.members = append(a.members, token)
			a.mu.Unlock()
			a.say("begin", token)
			_, _ = r.ReadByte() // returns when the member has died
			a.mu.Lock()
			a.members = slices.DeleteFunc(a.members, func(s string) bool { return s == token })
			a.mu.Unlock()
			a.say("end", token)
		}()
	}
}

// run runs a script and passes its output on.
func (a *agent) run(call, script string, args []string) {
	c := exec.Command("/bin/sh", append([]string{"-eu", "/world/" + script}, args...)...)
	c.Env = append(os.Environ(), "HOME=/root")
	c.Stdout = &lines{agent: a, call: call}
	c.Stderr = c.Stdout
	c.WaitDelay = 1 // what a script leaves behind may keep its output open
	_ = c.Run()
	a.say(call, "exit", fmt.Sprint(c.ProcessState.ExitCode()))
}

// lines passes what is written to it to the host, as lines of a call.
type lines struct {
	agent *agent
	call  string
	rest  []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			return len(b), nil
		}
		l.agent.say(l.call, "|", string(line))
		l.rest = rest
	}
}
