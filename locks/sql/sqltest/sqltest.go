// Package sqltest runs real MariaDB and PostgreSQL servers for tests: on
// loopback and unix sockets, in temporary directories, ended with the test;
// with TLS, behind PgBouncer, behind a proxy that makes faults.
//
// What a server committed outlives kill -9 of it, unless options say otherwise. Every
// server begins with a copy of the same data, made once per test binary: two
// PostgreSQL servers have the same system identifier.
package sqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// Password is every user's over TCP. Over the unix socket none is asked for.
const Password = "secret"

// ServerName is in the certificate of a server with TLS.
const ServerName = "lock.example"

// Server is one MariaDB or PostgreSQL server.
type Server struct {
	server.Process
	Kind string // mariadb or postgres
	User string // golock, who may do everything in databases of NewDatabase and nothing else

	// Of one with TLS, which is called ServerName. It wants the same from clients.
	Certificate, Key string

	kind    kind
	options []string
	names   atomic.Int64 // made so far
}

// kind is what differs between the servers.
type kind struct {
	name        string
	account     string         // user of the operating system
	stop        syscall.Signal // ends it in good order
	connections string         // ID, database, statement of the user golock's
	kill        string         // a connection with this ID
	program
}

type program interface {
	initialize(data string, a *syscall.Credential) error // makes a template
	settle(s *Server) error                              // makes what else is in a server's directory
	command(s *Server) (path string, args []string, err error)
	query(ctx context.Context, s *Server, database, text string) ([][]string, error) // query asks as the administrator
	newDatabase(s *Server, name string) string
	newUser(s *Server, u *User, rights string) error
	url(s *Server, user, database string) string
	tidy(s *Server) // removes what is left outside of the directory
}

// StartMaria starts a MariaDB server with options as in "max_connections=20".
func StartMaria(t testing.TB, options ...string) *Server {
	t.Helper()
	return startFor(t, maria(), false, options)
}

// StartPostgres is the same with PostgreSQL.
func StartPostgres(t testing.TB, options ...string) *Server {
	t.Helper()
	return startFor(t, postgres(), false, options)
}

// StartTLS starts a server of a kind (mariadb or postgres) that wants TLS over TCP.
func StartTLS(t testing.TB, name string) *Server {
	t.Helper()
	if name == "postgres" {
		return startFor(t, postgres(), true, nil)
	}
	return startFor(t, maria(), true, nil)
}

func startFor(t testing.TB, k kind, tls bool, options []string) *Server {
	t.Helper()
	s, err := start(k, tls, options)
	testkit.Must(t, err)
	t.Cleanup(s.discard)
	return s
}

// Maria is a MariaDB server that all tests share: each makes a database of its
// own, and none stops the server or changes its settings. It belongs to the run
// of all tests (Share), or to this process, which ends it with server.Close.
func Maria(t testing.TB) *Server {
	t.Helper()
	return sharedFor(t, maria())
}

// Postgres is the same with PostgreSQL.
func Postgres(t testing.TB) *Server {
	t.Helper()
	return sharedFor(t, postgres())
}

func sharedFor(t testing.TB, k kind) *Server {
	t.Helper()
	s, err := shared(k)
	testkit.Must(t, err)
	return s
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

func (s *Server) start() error {
	path, args, err := s.kind.command(s)
	if err != nil {
		return err
	}
	return s.Process.Start(path, args, func() bool {
		_, err := s.TryExec("", "SELECT 1")
		return err == nil
	})
}

// Stop ends the server in good order. Connections are closed.
func (s *Server) Stop() { s.End(s.kind.stop) }

// Restart starts a server that was stopped or killed again, at the same place
// with the same data. One that runs is stopped first.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	testkit.Must(t, s.start())
}

func (s *Server) discard() {
	s.Kill()
	s.kind.tidy(s)
	os.RemoveAll(s.Dir)
}

// newName is new on the server, which other processes use too.
func (s *Server) newName(what string) string {
	return fmt.Sprintf("%s%d_%d", what, os.Getpid(), s.names.Add(1))
}

// MakeDatabase makes one with this name.
func (s *Server) MakeDatabase(t testing.TB, name string) {
	t.Helper()
	s.Exec(t, "", s.kind.newDatabase(s, name))
}

// NewDatabase makes a database with a name that is new on the server.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	name := s.newName("db")
	s.MakeDatabase(t, name)
	return name
}

// URL returns the URL of a store in the database, over the unix socket, with options
// appended, such as "quarantine=0".
func (s *Server) URL(database string, options ...string) string {
	return server.WithOptions(s.kind.url(s, s.User, database), options)
}

// TCPURL is the same over TCP, with the password.
func (s *Server) TCPURL(database string, options ...string) string {
	return tcpURL(s.Kind, s.User, s.Addr(), database, options)
}

// URLAt returns the URL of a store in a database of the server behind a proxy with the given address.
func URLAt(s *Server, address, database string, options ...string) string {
	return tcpURL(s.Kind, s.User, address, database, options)
}

func tcpURL(scheme, user, address, database string, options []string) string {
	return server.WithOptions(fmt.Sprintf("%s://%s:%s@%s/%s", scheme, user, Password, address, database), options)
}

// Exec runs statements as the administrator, which must not fail, and returns
// the rows of all their results. The database "" is the server's own.
func (s *Server) Exec(t testing.TB, database, text string) [][]string {
	t.Helper()
	rows, err := s.TryExec(database, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return rows
}

// TryExec is Exec of what may fail.
func (s *Server) TryExec(database, text string) ([][]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), server.Patience)
	defer cancel()
	return s.kind.query(ctx, s, database, text)
}

// Connection is a client's.
type Connection struct {
	ID        string
	Database  string
	Statement string // running or, at PostgreSQL, the last
}

// Connections lists the connections of the user golock to a database, or to all
// databases if it is "".
func (s *Server) Connections(t testing.TB, database string) []Connection {
	t.Helper()
	var list []Connection
	for _, row := range s.Exec(t, "", s.kind.connections) {
		if c := (Connection{ID: row[0], Database: row[1], Statement: row[2]}); database == "" || database == c.Database {
			list = append(list, c)
		}
	}
	return list
}

// KillConnections has the server end those, as an administrator would, and
// returns how many they were. They may be gone a moment later.
func (s *Server) KillConnections(t testing.TB, database string) int {
	t.Helper()
	list := s.Connections(t, database)
	for _, c := range list {
		_, _ = s.TryExec("", fmt.Sprintf(s.kind.kill, c.ID)) // it may be gone by itself
	}
	return len(list)
}

// User is one with few rights.
type User struct {
	Name     string
	Database string
	server   *Server
}

// NewUser makes a user who has rights, as in "SELECT", "INSERT", on all tables
// of a database, also on those that golock makes later. It cannot make tables.
// Without any right MariaDB does not even let it use the database.
func (s *Server) NewUser(t testing.TB, database string, rights ...string) *User {
	t.Helper()
	u := &User{Name: s.newName("user"), Database: database, server: s}
	testkit.Must(t, s.kind.newUser(s, u, strings.Join(rights, ", ")))
	return u
}

// URL returns the URL of a store in the user's database, over the unix socket.
func (u *User) URL(options ...string) string {
	return server.WithOptions(u.server.kind.url(u.server, u.Name, u.Database), options)
}

// TCPURL is the same over TCP, with the password.
func (u *User) TCPURL(options ...string) string {
	return tcpURL(u.server.Kind, u.Name, u.server.Addr(), u.Database, options)
}
