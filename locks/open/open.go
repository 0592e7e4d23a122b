// Package open turns a store URL into a store. It is the one table of engines;
// adding one is a line here, a file like redis.go and a folder beside it.
package open

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golock/locks"
	"golock/locks/local"
)

// engines lists the schemes, in the order in which messages name them.
func engines() []engine {
	return slices.Concat([]engine{{scheme: "local", form: "local or local:///DIR", open: openLocal}},
		plainEngines(), filesEngines(), redisEngines(), mysqlEngines(), postgresEngines())
}

type engine struct {
	scheme string
	form   string // what its URLs look like; "" if another one stands for it
	open   func(address string) (locks.Store, error)
}

// planned are schemes that people will try and that this version refuses.
const planned = "etcd"

// Store gives the store of a URL. It does no I/O; an error names the part of
// the URL that is wrong and shows no secrets.
func Store(address string) (locks.Store, error) {
	scheme, _, _ := strings.Cut(address, ":")
	var forms []string
	for _, e := range engines() {
		if e.scheme == scheme {
			return e.open(address)
		}
		if e.form != "" {
			forms = append(forms, e.form)
		}
	}
	if scheme == planned {
		return nil, fmt.Errorf("scheme %s: is not in this version", scheme)
	}
	if !isScheme(scheme) || !strings.HasPrefix(address[len(scheme):], "://") { // it may be a part of a password
		return nil, fmt.Errorf("begins with no scheme: want %s", strings.Join(forms, ", "))
	}
	return nil, fmt.Errorf("scheme %q is not known: want %s", scheme, strings.Join(forms, ", "))
}

// Schemes gives all schemes that Store knows, in the order in which messages
// name them.
func Schemes() []string {
	var all []string
	for _, e := range engines() {
		all = append(all, e.scheme)
	}
	return all
}

// isScheme reports whether a text could be one (RFC 3986, 3.1), of those that
// people are likely to write.
func isScheme(text string) bool {
	return text != "" && len(text) <= 20 && strings.Trim(strings.ToLower(text), "abcdefghijklmnopqrstuvwxyz+") == ""
}

// Directory is where the golocks of this user find each other, whatever stores
// they use (local.DefaultDirectory). With create a missing one is made.
func Directory(create bool) (string, error) { return local.DefaultDirectory(create) }

// Locals are the default stores of all users of this host.
func Locals() (stores []locks.Store) {
	for _, path := range local.Directories() {
		stores = append(stores, local.New(path))
	}
	return stores
}

func openLocal(address string) (locks.Store, error) {
	rest, ok := strings.CutPrefix(address, "local:")
	if !ok {
		return local.New(""), nil
	}
	rest, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return nil, fmt.Errorf("want local or local:///DIR, with two slashes and the absolute path")
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return nil, fmt.Errorf("options: a local store has none, but there is %q (write %%3F or %%23 if it belongs to the directory's name)", locks.Printable(rest[i:], 40))
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("path: %w", err)
	case path == "" || path == "/":
		return nil, fmt.Errorf("path: a directory must be named, as in local:///var/lock/jobs")
	case path[0] != '/':
		return nil, fmt.Errorf("host: a local store has none; the directory begins with a slash, as in local:///var/lock/jobs")
	case strings.ContainsRune(path, 0):
		return nil, fmt.Errorf("path: contains a zero byte")
	}
	return local.New(path), nil
}
