// Package server is what tests need to run real servers: a process that can be
// killed, frozen and started again, and a proxy before it that makes faults.
package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// Patience bounds every wait for something that must happen. On a busy machine MariaDB needs more than half
// a minute to start.
const Patience = 90 * time.Second

// Loopback is where all servers listen.
const Loopback = "127.0.0.1"

// Process is a server or pooler with all its children. One goroutine at a time changes its state.
type Process struct {
	Host   string // 127.0.0.1, or an address in its namespace
	Port   int
	Socket string // MariaDB: the socket; PostgreSQL and PgBouncer: its directory
	Dir    string // its data, and its log

	// Credential is the user that the server runs as; nil stands for the user of the tests.
	Credential *syscall.Credential

	// Namespace is the file of the server's network namespace. If it is "", the server runs in the tests' namespace.
	Namespace string

	cmd    *exec.Cmd // nil if the server does not run
	ended  chan struct{}
	paused bool
}

// Site is where a server runs: an address, and the file of the network namespace that has the address. Namespace
// is empty for the network namespace of the tests.
type Site struct{ Host, Namespace string }

// Here is the loopback address.
func Here() Site { return Site{Host: Loopback} }

// NewProcess makes the directory of a process at a site. The directory's name begins with the prefix. A
// socket's path has at most 107 bytes, and t.TempDir's may have more. Other users connect to sockets
// in the directory.
func NewProcess(at Site, prefix string) (p Process, err error) {
	dir, err := os.MkdirTemp("", prefix)
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	return Process{Host: at.Host, Namespace: at.Namespace, Dir: dir}, err
}

// Discard kills the process and removes its directory.
func (p *Process) Discard() {
	p.Kill()
	os.RemoveAll(p.Dir)
}

func (p *Process) Addr() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// Log returns what the server has logged so far.
func (p *Process) Log() string {
	text, _ := os.ReadFile(p.logFile())
	return string(text)
}

func (p *Process) logFile() string { return filepath.Join(p.Dir, "log") }

// errEnded says that a process has ended instead of answering.
var errEnded = errors.New("it has ended")

// Start starts the program and returns when it answers.
func (p *Process) Start(path string, args []string, answers func() bool) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: p.Credential}
	ended, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The process dies with this thread, so it does nothing else.
		runtime.LockOSThread()
		defer close(ended)
		err := enter(p.Namespace)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.ended = cmd, ended
	// The loop pauses between two questions, because PostgreSQL forks for each one.
	for end := time.Now().Add(Patience); !answers(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			p.Kill() // its children
			return fmt.Errorf("%s: %w:\n%s", path, errEnded, p.Log())
		default:
		}
		if time.Now().After(end) {
			p.Kill()
			return fmt.Errorf("%s does not answer:\n%s", path, p.Log())
		}
	}
	return nil
}

// enter moves this thread into a network namespace. The processes that it starts are in it too.
func enter(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}

// StartAnywhere starts the process on a free port. If another process takes the port first, it tries
// another one.
func (p *Process) StartAnywhere(first int, start func() error) (err error) {
	for range 10 {
		if p.Port, err = FreePort(first); err != nil {
			return err
		}
		if err = start(); !errors.Is(err, errEnded) {
			return err
		}
	}
	return err
}

// Running reports whether the main process has not ended.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends all its processes as kill -9 does.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.cmd, p.paused = nil, false
	for {
		list := workersIn(p.Dir)
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// End sends a signal and waits for the end. It kills a process that does not end.
func (p *Process) End(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	p.Resume()
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
	case <-time.After(Patience):
	}
	p.Kill()
}

// Pause freezes all its processes and returns when they stand still.
func (p *Process) Pause() {
	if p.cmd == nil {
		return
	}
	p.paused = true
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	for {
		moving := false
		for _, pid := range workersIn(p.Dir) {
			if !still(pid) {
				moving = true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !moving {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *Process) Resume() {
	if !p.paused {
		return
	}
	p.paused = false
	for _, pid := range workersIn(p.Dir) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// workersIn returns the processes whose working directory is dir or below it. That identifies the children of a
// server also when their parent has ended.
func workersIn(dir string) []int {
	return slices.DeleteFunc(procfs.PIDs(), func(pid int) bool {
		at, err := os.Readlink(procfs.Dir(pid) + "/cwd")
		return err != nil || at != dir && !strings.HasPrefix(at, dir+"/") || pid == os.Getpid()
	})
}

// still reports whether every thread of a process is stopped, or has ended.
func still(pid int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if s, err := procfs.ReadStat(id); err == nil && !strings.ContainsRune("TZX", rune(s.State)) {
			return false
		}
	}
	return true
}

// Each kind of server has portCount ports of its own, from a first port on. So no other kind takes the port of a
// server that is being restarted. The kernel gives none of these ports to outgoing connections. A node of a Redis
// Cluster also uses the port that is higher by 10000. Tests of bind:// use 16000 to 19999.
const (
	RedisPorts = 10000
	SQLPorts   = 26000
	EtcdPorts  = 3000
	portCount  = 6000
)

// ports counts the ports that were tried, so that a process never uses one twice. Otherwise a
// sentinel could take a new server for its dead master, which had the same port. Processes begin
// with ports far from each other.
var ports atomic.Int64

// FreePort finds a port that nobody uses.
func FreePort(first int) (int, error) {
	for range 100 {
		port := first + int((ports.Add(1)+int64(os.Getpid())*1009)%portCount)
		free := true
		for _, p := range []int{port, port + 10000} {
			l, err := net.Listen("tcp", net.JoinHostPort(Loopback, strconv.Itoa(p)))
			if err != nil {
				free = false
				break
			}
			l.Close()
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("no free port")
}

// WithOptions appends options to a URL, as in "quarantine=0".
func WithOptions(url string, options []string) string {
	if len(options) == 0 {
		return url
	}
	mark := "?"
	if strings.Contains(url, "?") {
		mark = "&"
	}
	return url + mark + strings.Join(options, "&")
}
