package sqltest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
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

// Main runs the tests of a binary and ends what Maria and Postgres started, as
// in os.Exit(sqltest.Main(m)). Without it that ends soon after the process.
func Main(m interface{ Run() int }) int {
	defer ours.close()
	return m.Run()
}

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
		s.discard()
	}
	w.leash.Close()
	_ = w.janitor.Wait()
	w.dir = ""
}

// share gives the server of a kind that all tests share.
func (w *workshop) share(k kind, options ...string) (*Server, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.shared[k]; s != nil {
		return s, nil
	}
	s, err := w.server(k, false, options)
	if err == nil {
		w.shared[k] = s
	}
	return s, err
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
	s := &Server{Process: Process{Host: loopback, Dir: dir, account: account}, Kind: k.name(), User: "golock", kind: k, options: options}
	if text, err := exec.Command("cp", "-a", "--reflink=auto", template, s.data()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy of %s: %w\n%s", template, err, text)
	}
	if tls {
		if s.Certificates, err = newCertificates(dir, account); err != nil {
			return nil, err
		}
	}
	return s, k.settle(s)
}

// newDir makes a directory that a server's user owns. The caller holds w.mu.
func (w *workshop) newDir(name string, a *account) (string, error) {
	w.count++
	dir := filepath.Join(w.dir, name+strconv.Itoa(w.count))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, a.own(dir)
}

// account is the user that a server runs as; nil is that of the tests.
type account struct{ uid, gid int }

// accountFor is the first of these users that exists, if the tests run as root:
// the servers refuse to run as that.
func accountFor(names ...string) (*account, error) {
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
		return &account{uid, gid}, nil
	}
	return nil, fmt.Errorf("no user %v for servers, and they do not run as root", names)
}

func (a *account) own(file string) error {
	if a == nil {
		return nil
	}
	return os.Chown(file, a.uid, a.gid)
}

// attributes are those of a process of the user's that does not outlive the
// thread that starts it.
func (a *account) attributes() *syscall.SysProcAttr {
	s := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if a != nil {
		s.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return s
}

// run runs a program to its end as the user.
func (a *account) run(dir, input, path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.attributes().Credential}
	}
	if text, err := withInput(cmd, input).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path, err, text)
	}
	return nil
}
