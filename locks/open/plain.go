package open

import (
	"fmt"
	"net/url"
	"strings"

	"golock/locks"
	"golock/locks/bind"
	"golock/locks/lockfile"
)

// plainEngines are those whose URL is the lock.
func plainEngines() []engine {
	return []engine{
		{scheme: "flock", open: openLockFile},
		{scheme: "fcntl", open: openLockFile},
		{scheme: "bind", open: openBind},
	}
}

func openLockFile(address string) (locks.Store, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, _, _ = strings.Cut(address, ":")
		return nil, fmt.Errorf("want %s:///FILE, with two slashes and the absolute path", scheme)
	}
	file, err := pathOf(rest, "/run/job.lock", scheme)
	if err != nil {
		return nil, err
	}
	return lockfile.New(lockfile.Family(scheme), file), nil
}

func openBind(address string) (locks.Store, error) {
	rest, ok := strings.CutPrefix(address, "bind://")
	switch {
	case !ok:
		return nil, fmt.Errorf("want bind://127.0.0.1:PORT, bind:///SOCKET or bind://@NAME, with two slashes")
	case strings.HasPrefix(rest, "/"):
		file, err := pathOf(rest, "/run/job.sock", "bind")
		if err != nil {
			return nil, err
		}
		return asStore(bind.NewSocket(file))
	case strings.HasPrefix(rest, "@"):
		if err := noOptions(rest, "bind", "name"); err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(rest[1:])
		if err != nil {
			return nil, fmt.Errorf("name: %w", err)
		}
		return asStore(bind.NewAbstract(name))
	}
	if err := noOptions(rest, "bind", "port"); err != nil {
		return nil, err
	}
	return asStore(bind.NewPort(strings.TrimSuffix(rest, "/")))
}

// asStore keeps a nil pointer from becoming a store.
func asStore(s *bind.Store, err error) (locks.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// pathOf reads the part of a URL after the two slashes that names a file.
func pathOf(rest, example, scheme string) (string, error) {
	if err := noOptions(rest, scheme, "file"); err != nil {
		return "", err
	}
	file, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("path: %w", err)
	case file == "" || strings.Trim(file, "/") == "":
		return "", fmt.Errorf("path: a file must be named, as in %s://%s", scheme, example)
	case file[0] != '/':
		return "", fmt.Errorf("host: this store has none; the file begins with a slash, as in %s://%s", scheme, example)
	case strings.ContainsRune(file, 0):
		return "", fmt.Errorf("path: contains a zero byte")
	}
	return file, nil
}

func noOptions(rest, scheme, what string) error {
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return fmt.Errorf("options: a store of the scheme %s has none, but there is %q (write %%3F or %%23 if it belongs to the %s's name)", scheme, locks.Printable(rest[i:], 40), what)
	}
	return nil
}
