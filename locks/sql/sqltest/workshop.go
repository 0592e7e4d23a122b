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

// ours is what the servers of this test binary have in common. (The tests of each package
// are a process.) If that process is killed, make test removes what it leaves.
var ours struct {
	mu        sync.Mutex
	dir       string
	templates map[string]string // the directory of each kind's first data
	count     int
}

// shared returns the server of a kind that all tests share. If there is a run of all tests,
// its server is returned.
func shared(k kind) (*Server, error) {
	return server.Get(variable(k), func(p *server.Process) (s *Server, err error) {
		s = &Server{Process: *p, Kind: k.name, User: "golock", kind: k}
		if s.Credential, err = accountFor(k); err != nil {
			return nil, err
		}
		return s, k.settle(s)
	}, func() (*Server, func(), error) {
		s, err := start(k, false, []string{"max_connections=500"})
		return s, s.discard, err
	})
}

// Share starts the servers that the processes of a run share, and returns the
// variables by which those find them. server.Close ends them.
func Share() (variables []string, err error) {
	for _, k := range []kind{maria(), postgres()} {
		s, err := shared(k)
		if err != nil {
			return nil, err
		}
		template, err := templateOf(k, s.Credential)
		if err != nil {
			return nil, err
		}
		variables = append(variables, variable(k).Setting(&s.Process), templateVariable(k)+"="+template)
	}
	return variables, nil
}

func variable(k kind) server.Shared {
	return server.Shared("LOCKTEST_" + strings.ToUpper(k.name))
}

// templateVariable has the template of a run of all tests: to make one takes longer than most tests.
func templateVariable(k kind) string { return string(variable(k)) + "_TEMPLATE" }

// start makes and starts a server.
func start(k kind, tls bool, options []string) (*Server, error) {
	s, err := prepare(k, tls, options)
	if err != nil {
		return nil, err
	}
	if err := s.StartAnywhere(server.SQLPorts, s.start); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

// prepare makes a server's directory and its data.
func prepare(k kind, tls bool, options []string) (*Server, error) {
	account, err := accountFor(k)
	if err != nil {
		return nil, err
	}
	template, err := templateOf(k, account)
	if err != nil {
		return nil, err
	}
	dir, err := newDir(k.name, account)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Process: server.Process{Host: server.Loopback, Dir: dir, Credential: account},
		Kind:    k.name, User: "golock", kind: k, options: options,
	}
	if text, err := exec.Command("cp", "-a", "--reflink=auto", template, s.data()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy of %s: %w\n%s", template, err, text)
	}
	if tls {
		if s.Certificate, s.Key, err = server.NewCertificate(dir, ServerName); err != nil {
			return nil, err
		}
		if err := giveTo(account, s.Key); err != nil {
			return nil, err
		}
	}
	return s, k.settle(s)
}

// templateOf makes the data with which all servers of a kind begin, once.
func templateOf(k kind, account *syscall.Credential) (string, error) {
	if template := os.Getenv(templateVariable(k)); template != "" {
		return template, nil
	}
	ours.mu.Lock()
	defer ours.mu.Unlock()
	if template := ours.templates[k.name]; template != "" {
		return template, nil
	}
	dir, err := newDirLocked(k.name+"-template", account)
	if err != nil {
		return "", err
	}
	template := filepath.Join(dir, "data")
	if err := k.initialize(template, account); err != nil {
		os.RemoveAll(dir)
		return "", err
	}
	ours.templates[k.name] = template
	return template, nil
}

// newDir makes a directory that a server's user owns.
func newDir(name string, a *syscall.Credential) (string, error) {
	ours.mu.Lock()
	defer ours.mu.Unlock()
	return newDirLocked(name, a)
}

func newDirLocked(name string, a *syscall.Credential) (string, error) {
	if ours.dir == "" {
		// A socket's path is at most 107 bytes long, t.TempDir's may be longer.
		dir, err := os.MkdirTemp("", "sqltest-")
		if err != nil {
			return "", err
		}
		if err := os.Chmod(dir, 0o711); err != nil { // servers have users of their own
			return "", err
		}
		ours.dir, ours.templates = dir, map[string]string{}
		server.AtEnd(func() {
			os.RemoveAll(dir)
			ours.dir = ""
		})
	}
	ours.count++
	dir := filepath.Join(ours.dir, name+strconv.Itoa(ours.count))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, giveTo(a, dir)
}

// accountFor is the user that a server runs as, if the tests run as root: the servers
// refuse to run as that.
func accountFor(k kind) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(k.account)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	var c syscall.Credential
	_, err = fmt.Sscan(u.Uid+" "+u.Gid, &c.Uid, &c.Gid)
	return &c, err
}

func giveTo(a *syscall.Credential, file string) error {
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
