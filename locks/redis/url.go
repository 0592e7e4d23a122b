package redis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golock/locks"
)

// What a URL may leave out.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
	defaultPrefix       = "golock"
	defaultQuarantine   = 3 * time.Second
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
	kind     kind
	tls      bool
	hosts    []string // host:port; the socket's path for unixSocket
	master   string   // sentinel
	db       int
	user     string
	password string

	sentinelUser     string
	sentinelPassword string

	ca, cert, key, serverName string

	prefix     string
	quarantine time.Duration
	replicas   int // that must have a grant before it counts
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

// parse reads a URL. Its errors begin with the part that is wrong and show no
// secrets: nothing of what stands before the host is ever repeated, nor what a
// mistake may have put in the place of something else. A password with a slash
// or a question mark ends where it should not, and the rest of it is found
// where hosts, paths and options are.
//
// It does not use url.Parse, which knows no lists of hosts and puts the whole
// text, password included, into its errors.
func parse(address string) (*target, error) {
	t, err := read(address)
	if _, rest, _ := strings.Cut(address, "://"); err != nil && atAfterHost(rest) {
		return nil, errors.New("user and password: in them a / is written %2F, a ? %3F and a @ %40 (an @ elsewhere is %40 too)")
	}
	return t, err
}

// atAfterHost reports whether there is an @ where no host can follow.
func atAfterHost(rest string) bool {
	end := strings.IndexAny(rest, "/?")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

func read(address string) (*target, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return nil, errors.New("want redis://HOST:PORT/DB, with two slashes after the colon")
	}
	t := &target{prefix: defaultPrefix, quarantine: defaultQuarantine}
	if t.kind, t.tls, ok = schemeOf(scheme); !ok {
		return nil, fmt.Errorf("scheme %q: want redis, rediss, redis+unix, redis+sentinel or redis+cluster", locks.Printable(scheme, 20))
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("fragment: a store's URL has none (write %23 if the # belongs to a password)")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if err := t.login(authority[:at]); err != nil {
			return nil, err
		}
		authority = authority[at+1:]
	}
	if err := t.place(authority, path, hasPath); err != nil {
		return nil, err
	}
	if query != "" {
		for option := range strings.SplitSeq(query, "&") {
			if err := t.option(option); err != nil {
				return nil, err
			}
		}
	}
	return t, t.check()
}

func (t *target) login(userinfo string) error {
	user, password, _ := strings.Cut(userinfo, ":")
	var err error
	if t.user, err = url.PathUnescape(user); err != nil {
		return errors.New("user: has a % that is not followed by two hexadecimal digits (write %25 for a percent sign)")
	}
	if t.password, err = url.PathUnescape(password); err != nil {
		return errors.New("password: has a % that is not followed by two hexadecimal digits (write %25 for a percent sign)")
	}
	return nil
}

// place reads hosts and path.
func (t *target) place(authority, path string, hasPath bool) error {
	var err error
	switch t.kind {
	case unixSocket:
		if authority != "" {
			return errors.New("host: a socket has none; its path begins with a slash, as in redis+unix:///run/redis.sock")
		}
		path, err = url.PathUnescape("/" + path)
		switch {
		case err != nil:
			return errors.New("path: has a % that is not followed by two hexadecimal digits")
		case path == "/" || strings.ContainsRune(path, 0):
			return errors.New("path: the socket must be named, as in redis+unix:///run/redis.sock")
		}
		t.hosts = []string{path}
		return nil
	case tcp:
		if strings.Contains(authority, ",") {
			return errors.New("host: one is enough here; redis+sentinel:// and redis+cluster:// take several")
		}
		if t.hosts, err = hostList(authority, defaultPort); err != nil {
			return err
		}
		return t.database(path)
	case sentinel:
		if t.hosts, err = hostList(authority, defaultSentinelPort); err != nil {
			return err
		}
		master, db, _ := strings.Cut(path, "/")
		if t.master, err = url.PathUnescape(master); err != nil || t.master == "" {
			return errors.New("path: the master's name must follow the hosts, as in redis+sentinel://h1,h2/MASTER/DB")
		}
		return t.database(db)
	default:
		if t.hosts, err = hostList(authority, defaultPort); err != nil {
			return err
		}
		if hasPath && path != "" && path != "0" {
			return errors.New("db: a cluster has database 0 only")
		}
		return nil
	}
}

func hostList(list, port string) ([]string, error) {
	var hosts []string
	for host := range strings.SplitSeq(list, ",") {
		name, number := host, port
		if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
			name, number = host[:i], host[i+1:]
		}
		if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
			name = name[1 : len(name)-1]
		} else if strings.ContainsAny(name, ":[]") {
			return nil, fmt.Errorf("host: an IPv6 address stands in square brackets, as in [::1]:%s", port)
		}
		shown := locks.Printable(name, 60)
		if name == "" || strings.ContainsAny(name, " %") || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, fmt.Errorf("host %q: want a name or an address", shown)
		}
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 {
			// Not what it is: it is the password of a URL without a host.
			return nil, fmt.Errorf("port of host %q: want a number from 1 to 65535", shown)
		}
		hosts = append(hosts, net.JoinHostPort(name, number))
	}
	return hosts, nil
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

// option reads one KEY=VALUE.
func (t *target) option(text string) error {
	name, escaped, _ := strings.Cut(text, "=")
	value, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("option %s: has a %% that is not followed by two hexadecimal digits", locks.Printable(name, 20))
	}
	var where *string
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
	case "quarantine":
		if t.quarantine, err = time.ParseDuration(value); err != nil {
			seconds, numberErr := strconv.ParseFloat(value, 64)
			if numberErr != nil || !(seconds >= 0 && seconds <= 3600) {
				return fmt.Errorf("option quarantine=%q: want a duration, as in 3s", locks.Printable(value, 20))
			}
			t.quarantine = time.Duration(seconds * float64(time.Second))
		}
		if t.quarantine < 0 || t.quarantine > time.Hour {
			return fmt.Errorf("option quarantine=%q: want 0 to 1h", locks.Printable(value, 20))
		}
		return nil
	case "prefix":
		if value == "" || strings.ContainsAny(value, "{}") {
			return errors.New("option prefix: must not be empty and has no braces")
		}
		where = &t.prefix
	case "ca":
		where = &t.ca
	case "cert":
		where = &t.cert
	case "key":
		where = &t.key
	case "server-name":
		where = &t.serverName
	case "sentinel-user":
		where = &t.sentinelUser
	case "sentinel-password":
		where = &t.sentinelPassword
	default:
		return fmt.Errorf("option %q: is not known: want db, prefix, quarantine, min-replicas, ca, cert, key, server-name, sentinel-user or sentinel-password", locks.Printable(name, 20))
	}
	if value == "" {
		return fmt.Errorf("option %s: is empty", name)
	}
	*where = value
	return nil
}

// check finds options that contradict each other.
func (t *target) check() error {
	switch {
	case !t.tls && (t.ca != "" || t.cert != "" || t.key != "" || t.serverName != ""):
		return errors.New("options ca, cert, key and server-name: only with TLS, as in rediss://")
	case (t.cert == "") != (t.key == ""):
		return errors.New("options cert and key: one without the other")
	case t.kind == cluster && t.db != 0:
		return errors.New("db: a cluster has database 0 only")
	case t.kind != sentinel && (t.sentinelUser != "" || t.sentinelPassword != ""):
		return errors.New("options sentinel-user and sentinel-password: only with redis+sentinel://")
	}
	return nil
}

// String is the URL without its secrets.
func (t *target) String() string {
	var b strings.Builder
	b.WriteString("redis")
	if t.tls {
		b.WriteString("s")
	}
	b.WriteString([]string{tcp: "", unixSocket: "+unix", sentinel: "+sentinel", cluster: "+cluster"}[t.kind])
	b.WriteString("://")
	if t.user != "" {
		b.WriteString(escape(t.user) + "@")
	}
	var options []string
	add := func(name, value string) {
		if value != "" {
			options = append(options, name+"="+escape(value))
		}
	}
	db := ""
	if t.db != 0 {
		db = strconv.Itoa(t.db)
	}
	switch t.kind {
	case unixSocket:
		b.WriteString((&url.URL{Path: t.hosts[0]}).EscapedPath())
		add("db", db)
	default:
		b.WriteString(strings.Join(t.hosts, ","))
		if t.kind == sentinel {
			b.WriteString("/" + escape(t.master))
		}
		if db != "" {
			b.WriteString("/" + db)
		}
	}
	add("ca", t.ca)
	add("cert", t.cert)
	add("key", t.key)
	add("server-name", t.serverName)
	add("sentinel-user", t.sentinelUser)
	if t.prefix != defaultPrefix {
		add("prefix", t.prefix)
	}
	if t.quarantine != defaultQuarantine {
		add("quarantine", t.quarantine.String())
	}
	if t.replicas != 0 {
		add("min-replicas", strconv.Itoa(t.replicas))
	}
	if len(options) > 0 {
		b.WriteString("?" + strings.Join(options, "&"))
	}
	return b.String()
}

// escape writes text so that it can stand in any part of a URL. A plus sign
// means itself where parse reads it.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
