// Package open makes the store of a URL. It has the table of all engines. A new engine needs a line
// in the table and a directory beside this one.
package open

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golock/internal/spelling"
	"golock/locks"
	"golock/locks/local"
)

// engine is a row of the table.
type engine struct {
	scheme  string
	aliases []string // other names of the scheme that clients of the server know
	open    func(address string) (locks.Store, error)
}

// engines lists the schemes in the order in which messages name them. The table of a lean program
// lacks the servers.
func engines() []engine {
	return []engine{
		{scheme: "local", open: openLocal},
		{scheme: "flock", open: openLockFile},
		{scheme: "fcntl", open: openLockFile},
		{scheme: "bind", open: openBind},
		{scheme: "mkdir", open: openFiles},
		{scheme: "symlink", open: openFiles},
		{scheme: "excl", open: openFiles},
		{scheme: "redis", aliases: []string{"valkey"}, open: openRedis},
		{scheme: "rediss", aliases: []string{"valkeys"}, open: openRedis},
		{scheme: "redis+unix", aliases: []string{"unix"}, open: openRedis},
		{scheme: "redis+sentinel", aliases: []string{"redis-sentinel"}, open: openRedis},
		{scheme: "rediss+sentinel", aliases: []string{"rediss-sentinel"}, open: openRedis},
		{scheme: "redis+cluster", open: openRedis},
		{scheme: "rediss+cluster", open: openRedis},
		{scheme: "mysql", open: openMySQL},
		{scheme: "mariadb", open: openMySQL},
		{scheme: "postgres", aliases: []string{"pgsql"}, open: openPostgres},
		{scheme: "postgresql", open: openPostgres},
		{scheme: "etcd", open: openEtcd},
		{scheme: "etcds", open: openEtcd},
	}
}

// ErrNotLinked says that only the full program can use the store.
var ErrNotLinked = errors.New("this golock has no clients for servers")

// Store makes the store of a URL. It does no I/O. An error names the part of the URL that is wrong
// and shows no secrets. Upper case is allowed in schemes.
func Store(address string) (locks.Store, error) {
	// A secret with the URL may have a second line. In a path that line would make the URL of another lock.
	for _, r := range address {
		if unicode.IsControl(r) {
			return nil, fmt.Errorf("contains the control character %U: expected one URL on one line", r)
		}
	}
	scheme, _, _ := strings.Cut(address, ":")
	rest := address[len(scheme):]
	scheme = strings.ToLower(scheme)
	for _, e := range engines() {
		if e.scheme == scheme || slices.Contains(e.aliases, scheme) {
			s, err := e.open(e.scheme + rest)
			if err != nil {
				return nil, err // s may be a nil pointer of the engine's type, which is not a nil locks.Store
			}
			return s, nil
		}
	}
	return nil, unknown(address, scheme, rest)
}

// unknown explains in one line why no engine has the address. scheme is its scheme in lower case; rest
// is the text after the scheme. The message shows only texts that cannot be part of a password.
func unknown(address, scheme, rest string) error {
	base, _, hasDriver := strings.Cut(scheme, "+")
	names := slices.DeleteFunc(Schemes(), func(name string) bool { return strings.Contains(name, "+") })
	if expected := fromGo(address); expected != "" {
		return fmt.Errorf("has no scheme; this is the form of Go programs: expected %s", expected)
	}
	switch {
	case strings.HasPrefix(address, "/") && !strings.ContainsAny(address, "@:?#"):
		path := locks.Printable((&url.URL{Path: address}).EscapedPath(), 200)
		return fmt.Errorf("has no scheme: did you mean local://%[1]s, a directory of locks, or flock://%[1]s, one lock file?",
			path)
	case !strings.HasPrefix(rest, "://"):
		return fmt.Errorf("begins with no scheme: expected one of %s, as in local:///DIR or redis://HOST",
			strings.Join(names, ", "))
	case hasDriver && slices.Contains(names, base):
		return fmt.Errorf("scheme %s+...: did you mean %s://?", base, base)
	case !isWord(scheme): // it may be part of a password
		return fmt.Errorf("scheme is not known: expected one of %s", strings.Join(names, ", "))
	}
	if near := spelling.Nearest(scheme, Schemes()); near != "" {
		return fmt.Errorf("scheme %q is not known: did you mean %s://?", scheme, near)
	}
	return fmt.Errorf("scheme %q is not known: expected one of %s", scheme, strings.Join(names, ", "))
}

// isWord reports whether a text in lower case has the form of a scheme.
func isWord(text string) bool {
	return text != "" && len(text) <= 20 && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz+") == ""
}

// fromGo converts an address in the form of Go's MySQL client,
// USER:PASSWORD@tcp(HOST:PORT)/DATABASE, to a URL without the password. For any other address it
// returns "".
func fromGo(address string) string {
	at := max(strings.LastIndex(address, "@tcp("), strings.LastIndex(address, "@unix("))
	user, _, hasPassword := strings.Cut(address[:max(at, 0)], ":")
	network, inParentheses, _ := strings.Cut(address[at+1:], "(")
	host, database, isClosed := strings.Cut(inParentheses, ")/")
	if !isClosed || (network != "tcp" && network != "unix") {
		return ""
	}
	user = url.PathEscape(user)
	if hasPassword {
		user += ":PASSWORD"
	}
	if user != "" {
		user += "@"
	}
	database, _, _ = strings.Cut(database, "?")
	if network == "unix" {
		host, database = "localhost", database+"?socket="+host
	}
	return locks.Printable("mysql://"+user+host+"/"+database, 200)
}

// Schemes returns all schemes, in the order in which messages name them.
func Schemes() (all []string) {
	for _, e := range engines() {
		all = append(all, e.scheme)
	}
	return all
}

// Directory returns the directory in which the golocks of this user find each other
// (local.DefaultDirectory). With create, a missing directory is made.
func Directory(create bool) (string, error) { return local.DefaultDirectory(create) }

// Locals returns the default stores of all users of this host.
func Locals() (stores []locks.Store) {
	for _, path := range local.Directories() {
		stores = append(stores, local.New(path))
	}
	return stores
}
