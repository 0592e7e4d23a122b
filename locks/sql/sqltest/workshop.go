package sqltest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golock/locks/locktest/server"
)

// workshop is what the servers of one test binary have in common: a directory,
// a template of each kind's data, the servers that tests share.
type workshop struct {
	mu        sync.Mutex
	dir       string
	janitor   *exec.Cmd
	leash     *os.File
	templates map[kind]string
	shared    map[kind]*Server
	count     int
}

// ours is the workshop of this process: tests of different packages are
// different processes, and no test owns what all share.
var ours workshop

// Close ends the servers that Maria, Postgres and Share started. Without it that happens soon
// after the end of the process.
func Close() { ours.close() }

// janitorScript waits for the end of the tests, however it comes about (its
// standard input ends), then ends who still works in the directory and removes
// that, and the shared memory that a killed postgres leaves.
const janitorScript = `
cat >/dev/null
for p in /proc/[0-9]*; do
	case $(readlink "$p/cwd") in "$0"/*) kill -9 "${p#/proc/}";; esac
done
for f in "$0"/*/data/postmaster.pid; do
	[ -e "$f" ] && ipcrm -m "$(sed -n '7s/.* //p' "$f")"
done
rm -rf "$0" || { sleep 1; rm -rf "$0"; }`

// open makes the directory. The caller holds w.mu.
func (w *workshop) open() error {
	if w.dir != "" {
		return nil
	}
	// A socket's path is at most 107 bytes long, t.TempDir's may be longer.
	dir, err := os.MkdirTemp("", "sqltest-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // servers have users of their own
		return err
	}
	in, leash, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	janitor := exec.Command("/bin/sh", "-c", janitorScript, dir)
	janitor.Stdin = in
	janitor.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if err := janitor.Start(); err != nil {
		return err
	}
	w.dir, w.janitor, w.leash = dir, janitor, leash
	w.templates, w.shared = map[kind]string{}, map[kind]*Server{}
	return nil
}

func (w *workshop) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir == "" {
		return
	}
	for _, s := range w.shared {
		if s.Running() { // else it is the run's
			s.discard()
		}
	}
	w.leash.Close()
	_ = w.janitor.Wait()
	w.dir = ""
}

// share gives the server of a kind that all tests share: that of the run of all
// tests, if there is one.
func (w *workshop) share(k kind, options ...string) (*Server, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		return nil, err
	}
	if s := w.shared[k]; s != nil {
		return s, nil
	}
	s, err := attach(k)
	if s == nil && err == nil {
		s, err = w.server(k, false, options)
	}
	if err == nil {
		w.shared[k] = s
	}
	return s, err
}

// Share starts the servers that the processes of a run share, and returns the
// variables by which those find them. Close ends them.
func Share() (variables []string, err error) {
	for _, k := range []kind{maria{}, postgres{}} {
		s, err := ours.share(k, "max_connections=500")
		if err != nil {
			return nil, err
		}
		variables = append(variables, variable(k).Setting(&s.Process))
	}
	return variables, nil
}

func variable(k kind) server.Shared {
	return server.Shared("LOCKTEST_" + strings.ToUpper(k.name()))
}

// attach gives the server that the run of all tests has started; nil: none.
func attach(k kind) (*Server, error) {
	p, err := variable(k).Find()
	if p == nil || err != nil {
		return nil, err
	}
	s := &Server{Process: *p, Kind: k.name(), User: "golock", kind: k}
	if s.Credential, err = accountFor(k.accounts()...); err != nil {
		return nil, err
	}
	return s, k.settle(s)
}

// server makes and starts one. The caller holds w.mu.
func (w *workshop) server(k kind, tls bool, options []string) (*Server, error) {
	s, err := w.prepare(k, tls, options)
	if err != nil {
		return nil, err
	}
	if err := s.startSomewhere(); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// prepare makes a server's directory and its data. The caller holds w.mu.
func (w *workshop) prepare(k kind, tls bool, options []string) (*Server, error) {
	account, err := accountFor(k.accounts()...)
	if err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	template := w.templates[k]
	if template == "" {
		place, err := w.newDir(k.name()+"-template", account)
		if err != nil {
			return nil, err
		}
		template = filepath.Join(place, "data")
		if err := k.initialize(template, account); err != nil {
			os.RemoveAll(place)
			return nil, err
		}
		w.templates[k] = template
	}
	dir, err := w.newDir(k.name(), account)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: server.Process{Host: server.Loopback, Dir: dir, Credential: account}, Kind: k.name(), User: "golock", kind: k, options: options}
	if text, err := exec.Command("cp", "-a", "--reflink=auto", template, s.data()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy of %s: %w\n%s", template, err, text)
	}
	if tls {
		if s.Certificate, s.Key, err = server.NewCertificate(dir, ServerName); err != nil {
			return nil, err
		}
		if err := own(account, s.Key); err != nil {
			return nil, err
		}
	}
	return s, k.settle(s)
}

// newDir makes a directory that a server's user owns. The caller holds w.mu.
func (w *workshop) newDir(name string, a *syscall.Credential) (string, error) {
	w.count++
	dir := filepath.Join(w.dir, name+strconv.Itoa(w.count))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, own(a, dir)
}

// accountFor is the first of these users that exists, if the tests run as root:
// the servers refuse to run as that.
func accountFor(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no user %v for servers, and they do not run as root", names)
}

func own(a *syscall.Credential, file string) error {
	if a == nil {
		return nil
	}
	return os.Chown(file, int(a.Uid), int(a.Gid))
}

// run runs a program to its end as the user.
func run(a *syscall.Credential, dir, input, path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path, err, text)
	}
	return nil
}
