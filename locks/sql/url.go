package sql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golock/locks"
)

// What a URL may leave out.
const (
	defaultTable      = "golock"
	defaultQuarantine = 3 * time.Second
	defaultWaiters    = 16
)

// Target is what a URL says.
type Target struct {
	Database string
	User     string
	Password string

	scheme string
	login  string   // the user, as the URL has it; "" if it has none
	hosts  []string // host:port, or one socket
	socket string   // as the URL has it
	port   string   // likewise, beside a socket

	tls                       bool
	ca, cert, key, serverName string

	table      string
	waiters    int // so many keep a connection
	quarantine time.Duration
}

// Unix reports whether the hosts are one unix socket.
func (t *Target) Unix() bool { return t.socket != "" }

// Port is the URL's, for a socket whose name depends on it.
func (t *Target) Port() string { return t.port }

// parse reads a URL. Its errors begin with the part that is wrong and show no
// secrets: nothing of what stands before the host is ever repeated, nor what a
// mistake may have put in the place of something else.
func parse(address string, d Dialect) (*Target, error) {
	t, err := read(address, d)
	if _, rest, _ := strings.Cut(address, "://"); atAfterHost(rest) {
		return nil, errors.New("user and password: in them a / is written %2F, a ? %3F and a @ %40 (an @ elsewhere is %40 too)")
	}
	return t, err
}

// atAfterHost reports whether there is an @ where no host can follow.
func atAfterHost(rest string) bool {
	end := strings.IndexAny(rest, "/?")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

func read(address string, d Dialect) (*Target, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return nil, fmt.Errorf("want %s://USER@HOST:%s/DATABASE, with two slashes after the colon", d.Schemes()[0], d.Port())
	}
	if !slices.Contains(d.Schemes(), scheme) {
		return nil, fmt.Errorf("scheme %q: want %s", locks.Printable(scheme, 20), strings.Join(d.Schemes(), " or "))
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("fragment: a store's URL has none (write %23 if the # belongs to a password)")
	}
	t := &Target{scheme: scheme, table: defaultTable, waiters: defaultWaiters, quarantine: defaultQuarantine, port: d.Port()}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if err := t.readLogin(authority[:at]); err != nil {
			return nil, err
		}
		authority = authority[at+1:]
	}
	if query != "" {
		for option := range strings.SplitSeq(query, "&") {
			if err := t.option(option); err != nil {
				return nil, err
			}
		}
	}
	if err := t.place(authority, path, d); err != nil {
		return nil, err
	}
	return t, t.check()
}

func (t *Target) readLogin(userinfo string) error {
	name, password, _ := strings.Cut(userinfo, ":")
	var err error
	if t.login, err = url.PathUnescape(name); err != nil {
		return errors.New("user: has a % that is not followed by two hexadecimal digits (write %25 for a percent sign)")
	}
	if t.Password, err = url.PathUnescape(password); err != nil {
		return errors.New("password: has a % that is not followed by two hexadecimal digits (write %25 for a percent sign)")
	}
	if strings.ContainsRune(t.login+t.Password, 0) {
		return errors.New("user and password: must not contain a zero byte")
	}
	return nil
}

// place reads hosts and path. Who leaves out the user means the one that golock
// runs as, like the servers' own clients.
func (t *Target) place(authority, path string, d Dialect) error {
	var err error
	if t.Database, err = url.PathUnescape(path); err != nil {
		return errors.New("database: has a % that is not followed by two hexadecimal digits")
	}
	if t.Database == "" || strings.ContainsFunc(t.Database, unicode.IsControl) {
		return fmt.Errorf("database: must be named, as in %s://HOST/DATABASE", t.scheme)
	}
	if t.User = t.login; t.User == "" {
		if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
			t.User = u.Username
		} else {
			return errors.New("user: must be named, as this one has no name of its own")
		}
	}
	if t.socket == "" {
		t.hosts, err = hostList(authority, d.Port())
		return err
	}
	if t.socket[0] != '/' {
		return errors.New("option socket: want an absolute path")
	}
	t.hosts = []string{t.socket}
	if authority == "" {
		return nil
	}
	hosts, err := hostList(authority, d.Port())
	if err != nil {
		return err
	}
	name, port, _ := net.SplitHostPort(hosts[0])
	if len(hosts) > 1 || name != "localhost" {
		return errors.New("host: with ?socket= it is localhost, or left out")
	}
	t.port = port
	return nil
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

const optionNames = "socket, table, waiters, quarantine, tls, ca, cert, key or server-name"

// option reads one KEY=VALUE.
func (t *Target) option(text string) error {
	name, escaped, _ := strings.Cut(text, "=")
	value, err := url.PathUnescape(escaped)
	if err != nil {
		return fmt.Errorf("option %s: has a %% that is not followed by two hexadecimal digits", locks.Printable(name, 20))
	}
	shown := locks.Printable(value, 20)
	var where *string
	switch name {
	case "table":
		if !isTable(value) {
			return fmt.Errorf("option table=%q: want a name of letters, digits and _, at most 48, perhaps after another one and a dot", shown)
		}
		where = &t.table
	case "waiters":
		n, err := strconv.ParseUint(value, 10, 10)
		if err != nil {
			return fmt.Errorf("option waiters=%q: want a number from 0 to 1023", shown)
		}
		t.waiters = int(n)
		return nil
	case "quarantine":
		if t.quarantine, err = time.ParseDuration(value); err != nil {
			seconds, numberErr := strconv.ParseFloat(value, 64)
			if numberErr != nil || !(seconds >= 0 && seconds <= 3600) {
				return fmt.Errorf("option quarantine=%q: want a duration, as in 3s", shown)
			}
			t.quarantine = time.Duration(seconds * float64(time.Second))
		}
		if t.quarantine < 0 || t.quarantine > time.Hour {
			return fmt.Errorf("option quarantine=%q: want 0 to 1h", shown)
		}
		return nil
	case "tls":
		switch value {
		case "on":
			t.tls = true
		case "off":
		default:
			return fmt.Errorf("option tls=%q: want on, which verifies the server, or off", shown)
		}
		return nil
	case "sslmode", "ssl-mode":
		return fmt.Errorf("option %s: is tls here: tls=on verifies the server's certificate and name, tls=off is in the clear", name)
	case "socket", "host":
		where = &t.socket
	case "ca":
		where = &t.ca
	case "cert":
		where = &t.cert
	case "key":
		where = &t.key
	case "server-name":
		where = &t.serverName
	default:
		return fmt.Errorf("option %q: is not known: want %s", locks.Printable(name, 20), optionNames)
	}
	if value == "" || strings.ContainsRune(value, 0) {
		return fmt.Errorf("option %s: is empty, or contains a zero byte", name)
	}
	*where = value
	return nil
}

// isTable reports whether a name can be the table's.
func isTable(name string) bool {
	schema, table, dotted := strings.Cut(name, ".")
	if !dotted {
		schema, table = "x", name
	}
	for _, part := range []string{schema, table} {
		if part == "" || len(part) > 48 || part[0] >= '0' && part[0] <= '9' {
			return false
		}
		for _, c := range []byte(part) {
			if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	return true
}

// check finds options that contradict each other.
func (t *Target) check() error {
	switch {
	case !t.tls && (t.ca != "" || t.cert != "" || t.key != "" || t.serverName != ""):
		return errors.New("options ca, cert, key and server-name: only with tls=on")
	case (t.cert == "") != (t.key == ""):
		return errors.New("options cert and key: one without the other")
	case t.tls && t.socket != "":
		return errors.New("option tls: not on a socket")
	}
	return nil
}

// TLS is the configuration for one of the hosts, which verifies the server
// against the system's authorities or the given one, and its name. nil: none.
func (t *Target) TLS(host string) (*tls.Config, error) {
	if !t.tls {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.serverName, MinVersion: tls.VersionTLS12}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(host)
	}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, &refusal{err: fmt.Errorf("option ca: %w", err)}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, &refusal{err: fmt.Errorf("option ca: %s holds no certificate", t.ca)}
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, &refusal{err: fmt.Errorf("options cert and key: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// String is the URL without its secrets.
func (t *Target) String() string {
	var b strings.Builder
	b.WriteString(t.scheme + "://")
	if t.login != "" {
		b.WriteString(escape(t.login, 1<<16) + "@")
	}
	var options []string
	add := func(name, value string) {
		if value != "" {
			options = append(options, name+"="+escape(value, 1<<16))
		}
	}
	if t.socket != "" {
		b.WriteString("localhost:" + t.port)
		options = append(options, "socket="+strings.ReplaceAll(escape(t.socket, 1<<16), "%2F", "/"))
	} else {
		b.WriteString(strings.Join(t.hosts, ","))
	}
	b.WriteString("/" + escape(t.Database, 1<<16))
	if t.table != defaultTable {
		add("table", t.table)
	}
	if t.waiters != defaultWaiters {
		add("waiters", strconv.Itoa(t.waiters))
	}
	if t.quarantine != defaultQuarantine {
		add("quarantine", t.quarantine.String())
	}
	if t.tls {
		add("tls", "on")
	}
	add("ca", t.ca)
	add("cert", t.cert)
	add("key", t.key)
	add("server-name", t.serverName)
	if len(options) > 0 {
		b.WriteString("?" + strings.Join(options, "&"))
	}
	return b.String()
}
