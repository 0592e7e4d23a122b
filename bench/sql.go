package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sqlPlan says how much is measured of each SQL store.
type sqlPlan struct {
	start    int // rounds of the start-up comparison
	single   int // hand-offs with one waiter
	long     int // such behind a command that has run for seconds
	queue    int // rounds of hand-offs with waiters
	waiters  int
	burst    int // rounds
	jobs     int
	section  int   // ms that each of the jobs lasts
	idle     []int // waiters that are watched
	sessions int   // of clients that have a connection each
	settle   int   // seconds before they are
	ttl      int   // of theirs, in seconds; they are watched for two thirds of it
	memory   int   // samples
	link     int   // rounds
}

// sqlKind is a kind of SQL server.
type sqlKind interface {
	// title is its name, scheme that of its URLs and of what -only calls its
	// measurements.
	title() string
	scheme() string

	// find looks for the programs and builds the client to compare with.
	find(b *bench) error

	// owner is the user whose processes the server's are if the harness runs as
	// root; the packages make one.
	owner() string

	// create makes the server's files below home, serve is the command line that
	// runs it on them: what is not about places is as the package has it.
	create(d *database) error
	serve(d *database) []string

	// connect gives a connection of the administrator's, to the database of the
	// URL or, "", to the one that is always there.
	connect(d *database, name string) (sqlClient, error)

	// userAndDatabase are statements that make those of the URL.
	userAndDatabase() []string

	// socket is what ?socket= has to name.
	socket(d *database) string

	// session is the client that holds one of the server's own locks as long as
	// its session lasts, sessionNote says what it is.
	session(d *database) *tool
	sessionNote() string

	// sessions are the ways to wait for that lock: asleep, and by asking again.
	sessions() []func(d *database) *tool

	// size is what golock's table takes up, its indexes included, in KiB.
	size(d *database) (float64, error)

	// work is what the server has been asked so far.
	work(d *database) (work, error)
}

var sqlKinds = []sqlKind{mariaDB{}, postgreSQL{}}

// sqlClient is one connection.
type sqlClient interface {
	// ask gives the rows of one statement.
	ask(statement string) ([][]string, error)
	close()
}

// database is a server of the harness' own. What is committed to it is on the
// disk.
type database struct {
	*process
	b       *bench
	kind    sqlKind
	home    string // a directory, its owner's
	as      *syscall.Credential
	address string // HOST:PORT, on loopback
	logged  bool   // it writes down every statement
	client  sqlClient
}

// The user and the database of the stores.
const (
	sqlUser     = "golock"
	sqlPassword = "secret"
	sqlDatabase = "locks"
)

// startDatabase starts a server on a free port and returns when it answers.
func (b *bench) startDatabase(kind sqlKind, logged bool) (*database, error) {
	for range 10 {
		l, err := b.place(kind.scheme())
		if err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		d := &database{b: b, kind: kind, home: l.dir, address: net.JoinHostPort("127.0.0.1", port), logged: logged}
		if d.as, err = b.owned(l.dir, kind.owner()); err != nil {
			return nil, err
		}
		if err := kind.create(d); err != nil {
			return nil, err
		}
		if d.process, err = b.startAs(d.as, kind.serve(d)); err != nil {
			return nil, err
		}
		err = b.until(kind.title()+" answers", 5*time.Millisecond, func() (bool, error) {
			if d.gone() {
				return false, errors.New(kind.title() + " has ended")
			}
			client, err := kind.connect(d, "")
			if err == nil {
				d.client = client
			}
			return err == nil, nil
		})
		if err == nil {
			err = d.prepare()
		}
		if err == nil {
			b.mu.Lock()
			b.servers = append(b.servers, d.process)
			b.mu.Unlock()
			return d, nil
		}
		gone := d.gone() // somebody else was quicker at the port
		d.stop()
		if !gone {
			return nil, err
		}
	}
	return nil, errors.New(kind.title() + " does not start" + b.logTail())
}

// prepare makes user and database, and connects to that.
func (d *database) prepare() error {
	for _, statement := range d.kind.userAndDatabase() {
		if _, err := d.client.ask(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	client, err := d.kind.connect(d, sqlDatabase)
	if err != nil {
		return err
	}
	d.client.close()
	d.client = client
	return nil
}

// owned gives a directory to a user, if the harness is root: servers of
// databases do not want to be.
func (b *bench) owned(dir, name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("whose processes are the server's: %w", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	if err := os.Chmod(b.dir, 0o711); err != nil { // the way there
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

// end asks a server to stop at once. PostgreSQL ends its children then, and
// gives back a piece of shared memory that outlives processes.
func (p *process) end() {
	p.b.mu.Lock()
	if !p.gone() {
		_ = unix.Kill(p.pid, unix.SIGQUIT)
	}
	p.b.mu.Unlock()
}

// stop ends it.
func (d *database) stop() {
	if d.client != nil {
		d.client.close()
	}
	d.end()
	_, _ = d.wait()
}

// endServers ends those that run, before everything else is killed.
func (b *bench) endServers() {
	b.mu.Lock()
	servers := b.servers
	b.mu.Unlock()
	for _, p := range servers {
		p.end()
		for deadline := time.Now().Add(3 * time.Second); !p.gone() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
}

// command is one that the server's owner runs.
func (d *database) command(path string, args ...string) *exec.Cmd {
	c := exec.Command(path, args...)
	c.Env, c.Dir, c.SysProcAttr = append(d.b.env, "TMPDIR="+d.home), d.home, &syscall.SysProcAttr{Credential: d.as}
	return c
}

// path of a file of the server's.
func (d *database) path(name string) string { return filepath.Join(d.home, name) }

func (d *database) port() string {
	_, port, _ := net.SplitHostPort(d.address)
	return port
}

// number is the answer to a statement that has one.
func (d *database) number(statement string) (int, error) {
	rows, err := d.client.ask(statement)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", statement, err)
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return 0, fmt.Errorf("%s: %d rows", statement, len(rows))
	}
	return strconv.Atoi(rows[0][0])
}

// url is that of a store, over TCP and with a password. The server is young,
// and nobody has anything on it that it may have forgotten.
func (d *database) url(lock) string {
	return fmt.Sprintf("%s://%s:%s@%s/%s?quarantine=0", d.kind.scheme(), sqlUser, sqlPassword, d.address, sqlDatabase)
}

// urlOfSocket is that of the same store, by the unix socket.
func (d *database) urlOfSocket(lock) string {
	return fmt.Sprintf("%s://%s:%s@localhost:%s/%s?quarantine=0&socket=%s", d.kind.scheme(), sqlUser, sqlPassword, d.port(), sqlDatabase, d.kind.socket(d))
}

// golock is golock on this server.
func (d *database) golock(flags ...string) *tool {
	return d.golockBy(strings.Join(append([]string{"golock run, " + d.kind.scheme()}, flags...), " "), d.url, flags...)
}

// golockBySocket is the same by the unix socket.
func (d *database) golockBySocket() *tool {
	return d.golockBy("golock run, "+d.kind.scheme()+", its socket", d.urlOfSocket)
}

func (d *database) golockBy(name string, url func(lock) string, flags ...string) *tool {
	t := golockTool(name, d.b.tools["golock"].path, url, flags...)
	t.waiting = func(lock) (int, error) { return d.queued() }
	return t
}

// queued counts the waiters of golock: each has a row. The table is there when
// the first run has used it.
func (d *database) queued() (int, error) {
	return d.number("SELECT count(*) FROM golock WHERE state='W'")
}

// used has the store used once, so that its table is there.
func (d *database) used() error {
	l, err := d.b.place("first")
	if err != nil {
		return err
	}
	t := d.golock()
	p, err := d.b.start(t.argv(l, d.b.tools["true"].path))
	if err != nil {
		return err
	}
	_, err = p.succeed()
	return err
}

// work is what a server has done since it was started.
type work struct {
	statements   int // that clients have sent, the harness' apart
	transactions int // that clients have begun
	connections  int // that were made
	cpu          float64
}

func (w work) since(before work) work {
	return work{w.statements - before.statements, w.transactions - before.transactions, w.connections - before.connections, w.cpu - before.cpu}
}
