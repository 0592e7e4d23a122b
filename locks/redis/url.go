package redis

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/network"
)

// What a URL may leave out.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
	defaultPrefix       = "golock"
)

// The ways to reach a server.
type kind int

const (
	tcp kind = iota
	unixSocket
	sentinel
	cluster
)

// target is what a URL says.
type target struct {
	network.Options
	kind     kind
	hosts    []string // host:port; the socket's path for unixSocket
	master   string   // sentinel
	db       int
	user     string
	password string

	sentinelUser     string
	sentinelPassword string

	prefix   string
	replicas int // that must have a grant before it counts

	dialTimeout, readTimeout, writeTimeout time.Duration // 0: golock's own
}

// schemeOf takes a scheme apart. The s of rediss stands for TLS.
func schemeOf(scheme string) (k kind, secure, ok bool) {
	base, way, _ := strings.Cut(scheme, "+")
	secure = base == "rediss"
	if base != "redis" && !secure {
		return 0, false, false
	}
	switch way {
	case "":
		return tcp, secure, scheme == base
	case "unix":
		return unixSocket, false, !secure
	case "sentinel":
		return sentinel, secure, true
	case "cluster":
		return cluster, secure, true
	}
	return 0, false, false
}

// parse reads a URL. Its errors begin with the part that is wrong.
func parse(address string) (*target, error) {
	t, err := read(address)
	if err != nil && network.HasLateAt(address) {
		return nil, network.ErrUnescaped
	}
	return t, err
}

func read(address string) (*target, error) {
	u, err := network.SplitURL(address, "redis://HOST:PORT/DB")
	if err != nil {
		return nil, err
	}
	t := &target{Options: network.NewOptions(), prefix: defaultPrefix, user: u.User, password: u.Password}
	var ok bool
	if t.kind, t.TLS, ok = schemeOf(u.Scheme); !ok {
		return nil, fmt.Errorf("scheme %q: want redis, rediss, redis+unix, redis+sentinel or redis+cluster", locks.Printable(u.Scheme, 20))
	}
	if err := t.place(u); err != nil {
		return nil, err
	}
	if err := u.EachOption(t.option); err != nil {
		return nil, err
	}
	return t, t.check()
}

// place reads hosts and path.
func (t *target) place(u network.URL) (err error) {
	switch t.kind {
	case unixSocket:
		if u.Authority != "" {
			return errors.New("host: a socket has none; its path begins with a slash, as in redis+unix:///run/redis.sock")
		}
		path, err := url.PathUnescape("/" + u.Path)
		switch {
		case err != nil:
			return errors.New("path: has a % that is not followed by two hexadecimal digits")
		case path == "/" || strings.ContainsRune(path, 0):
			return errors.New("path: the socket must be named, as in redis+unix:///run/redis.sock")
		}
		t.hosts = []string{path}
		return nil
	case tcp:
		if strings.Contains(u.Authority, ",") {
			return errors.New("host: one is enough here; redis+sentinel:// and redis+cluster:// take several")
		}
		if t.hosts, err = network.Hosts(u.Authority, defaultPort); err != nil {
			return err
		}
		return t.database(u.Path)
	case sentinel:
		if t.hosts, err = network.Hosts(u.Authority, defaultSentinelPort); err != nil {
			return err
		}
		master, db, _ := strings.Cut(u.Path, "/")
		if t.master, err = url.PathUnescape(master); err != nil || t.master == "" {
			return errors.New("path: the master's name must follow the hosts, as in redis+sentinel://h1,h2/MASTER/DB")
		}
		return t.database(db)
	}
	if t.hosts, err = network.Hosts(u.Authority, defaultPort); err != nil {
		return err
	}
	if u.Path != "" && u.Path != "0" {
		return errors.New("db: a cluster has database 0 only")
	}
	return nil
}

func (t *target) database(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("db %q: want a number from 0, as in redis://HOST/0", locks.Printable(text, 20))
	}
	t.db = int(n)
	return nil
}

func (t *target) option(name, value string) error {
	if known, err := t.Set(name, value); known {
		return err
	}
	switch name {
	case "db":
		return t.database(value)
	case "min-replicas":
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || n == 0 {
			return fmt.Errorf("option min-replicas=%q: want a number from 1 to 255", locks.Printable(value, 20))
		}
		t.replicas = int(n)
		return nil
	case "prefix":
		if value == "" || strings.ContainsAny(value, "{}") {
			return errors.New("option prefix: must not be empty and has no braces")
		}
		t.prefix = value
		return nil
	case "dial_timeout":
		return network.Timeout(name, value, &t.dialTimeout)
	case "read_timeout":
		return network.Timeout(name, value, &t.readTimeout)
	case "write_timeout":
		return network.Timeout(name, value, &t.writeTimeout)
	case "protocol": // golock needs nothing of the newer one
		if value != "2" && value != "3" {
			return fmt.Errorf("option protocol=%q: want 2 or 3", locks.Printable(value, 20))
		}
		return nil
	case "skip_verify":
		if value != "false" {
			return errors.New("option skip_verify: the server is always verified: ca=FILE names the authority that signed its certificate")
		}
		return nil
	case "sentinel-user":
		return network.Text(name, value, &t.sentinelUser)
	case "sentinel-password":
		return network.Text(name, value, &t.sentinelPassword)
	}
	return fmt.Errorf("option %q: is not known: want db, prefix, quarantine, min-replicas, ca, cert, key, server-name, sentinel-user, sentinel-password, dial_timeout, read_timeout or write_timeout",
		locks.Printable(name, 20))
}

// check finds options that contradict each other.
func (t *target) check() error {
	switch {
	case t.kind == cluster && t.db != 0:
		return errors.New("db: a cluster has database 0 only")
	case t.kind != sentinel && (t.sentinelUser != "" || t.sentinelPassword != ""):
		return errors.New("options sentinel-user and sentinel-password: only with redis+sentinel://")
	}
	return t.Check("TLS, as in rediss://")
}

// String is the URL without its secrets.
func (t *target) String() string {
	var b strings.Builder
	b.WriteString("redis")
	if t.TLS {
		b.WriteString("s")
	}
	b.WriteString([]string{tcp: "", unixSocket: "+unix", sentinel: "+sentinel", cluster: "+cluster"}[t.kind] + "://")
	if t.user != "" {
		b.WriteString(network.Escape(t.user) + "@")
	}
	db := ""
	if t.db != 0 {
		db = strconv.Itoa(t.db)
	}
	var options network.Query
	if t.kind == unixSocket {
		b.WriteString((&url.URL{Path: t.hosts[0]}).EscapedPath())
		options.Add("db", db)
	} else {
		b.WriteString(strings.Join(t.hosts, ","))
		if t.kind == sentinel {
			b.WriteString("/" + network.Escape(t.master))
		}
		if db != "" {
			b.WriteString("/" + db)
		}
	}
	options.AddTLS(&t.Options)
	options.Add("sentinel-user", t.sentinelUser)
	if t.prefix != defaultPrefix {
		options.Add("prefix", t.prefix)
	}
	options.AddQuarantine(&t.Options)
	if t.replicas != 0 {
		options.Add("min-replicas", strconv.Itoa(t.replicas))
	}
	options.AddTimeout("dial_timeout", t.dialTimeout)
	options.AddTimeout("read_timeout", t.readTimeout)
	options.AddTimeout("write_timeout", t.writeTimeout)
	return b.String() + options.String()
}
