package sql

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"golock/internal/passwd"
	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
)

// Target is what a URL says.
type Target struct {
	network.Options
	Database string
	User     string
	Password string
	Socket   string // the path of the socket as the URL has it; empty for TCP
	Port     string // the port, for a socket whose name depends on it

	url   string   // the URL without secrets
	hosts []string // host:port, or one socket

	table   string
	waiters int // how many waiters of a name keep a connection; -1 means a share of what the server allows

	Application    string // PostgreSQL's application_name
	connectTimeout time.Duration
}

// parse reads a URL. Its errors begin with the part that is wrong.
func parse(address string, d Dialect) (*Target, error) {
	u, err := network.SplitURL(address, fmt.Sprintf("%s://USER@HOST:%s/DATABASE", d.Schemes[0], d.Port))
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(d.Schemes, u.Scheme):
		return nil, fmt.Errorf("scheme %q: expected %s",
			locks.Printable(u.Scheme, 20), strings.Join(d.Schemes, " or "))
	case strings.HasPrefix(u.Authority, "tcp(") || strings.HasPrefix(u.Authority, "unix("):
		return nil, fmt.Errorf("host %q: is written without parentheses: %s://USER@HOST:%s/DATABASE, or ?socket=PATH",
			locks.Printable(u.Authority, 80), u.Scheme, d.Port)
	case strings.ContainsRune(u.User+u.Password, 0):
		return nil, errors.New("user and password: must not contain a zero byte")
	}
	t := &Target{
		Options: network.NewOptions(), url: u.Redacted(), User: u.User, Password: u.Password,
		table: "golock", waiters: -1, connectTimeout: lease.NewcomerAttempt,
	}
	if err := u.EachOption(func(name, value string) error { return t.option(d, name, value) }); err != nil {
		return nil, err
	}
	if err := t.place(u, d); err != nil {
		return nil, err
	}
	t.connectTimeout = min(t.connectTimeout, t.newcomerAttempt())
	if t.TLS && t.Socket != "" {
		return nil, errors.New("options tls, sslmode and ssl-mode: not on a socket")
	}
	return t, t.Check("tls=on")
}

// newcomerAttempt limits an attempt of an entry that is not in the queue yet. If there are several hosts,
// another host may answer sooner.
func (t *Target) newcomerAttempt() time.Duration {
	if len(t.hosts) > 1 {
		return lease.ShortAttempt
	}
	return lease.NewcomerAttempt
}

// isOnThisMachine reports whether the server at one of the hosts shares the processors of this machine.
func (t *Target) isOnThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return t.Socket != "" || network.IsLoopback(host)
}

// place reads hosts and path. If the URL has no user, place takes the user that golock runs as, like the
// servers' own clients do.
func (t *Target) place(u network.URL, d Dialect) error {
	var err error
	if t.Database, err = network.Unescape("database", u.Path); err != nil {
		return err
	}
	if t.Database == "" || strings.ContainsFunc(t.Database, unicode.IsControl) {
		return fmt.Errorf("database: must be named, as in %s://HOST/DATABASE", u.Scheme)
	}
	if t.User == "" {
		account, err := passwd.Host().User(os.Geteuid())
		if err != nil {
			return fmt.Errorf("user: must be named, as in %s://USER@HOST/DATABASE, because user %d %w",
				u.Scheme, os.Geteuid(), err)
		}
		t.User = account.Name
	}
	if t.Socket != "" && t.Socket[0] != '/' {
		return errors.New("option socket: expected an absolute path")
	}
	if t.Socket != "" && u.Authority == "" {
		u.Authority = "localhost"
	}
	if t.hosts, err = network.Hosts(u.Authority, d.Port); err != nil || t.Socket == "" {
		return err
	}
	name, port, _ := net.SplitHostPort(t.hosts[0])
	if len(t.hosts) > 1 || name != "localhost" {
		return errors.New("host: with ?socket= it is localhost, or left out")
	}
	t.hosts, t.Port = []string{t.Socket}, port
	return nil
}
