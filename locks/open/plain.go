package open

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golock/locks"
	"golock/locks/bind"
	"golock/locks/files"
	"golock/locks/local"
	"golock/locks/lockfile"
)

func openLocal(address string) (locks.Store, error) {
	if address == "local" {
		return local.New(""), nil
	}
	rest, ok := strings.CutPrefix(address, "local://")
	if !ok {
		return nil, errors.New("want local or local:///DIR, with two slashes and the absolute path")
	}
	path, err := pathOf(rest, "directory", "local:///var/lock/jobs")
	if err != nil {
		return nil, err
	}
	return local.New(path), nil
}

func openFiles(address string) (locks.Store, error) { return store(files.Open(address)) }

func openLockFile(address string) (locks.Store, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return nil, fmt.Errorf("want %s:///FILE, with two slashes and the absolute path", scheme)
	}
	file, err := pathOf(rest, "file", scheme+":///run/job.lock")
	if err != nil {
		return nil, err
	}
	return lockfile.New(lockfile.Family(scheme), file), nil
}

func openBind(address string) (locks.Store, error) {
	rest, ok := strings.CutPrefix(address, "bind://")
	name, isName := strings.CutPrefix(rest, "@")
	switch {
	case !ok:
		return nil, errors.New("want bind://127.0.0.1:PORT, bind:///SOCKET or bind://@NAME, with two slashes")
	case strings.HasPrefix(rest, "/"):
		file, err := pathOf(rest, "file", "bind:///run/job.sock")
		if err != nil {
			return nil, err
		}
		return store(bind.NewSocket(file))
	case isName:
		if err := noOptions(name, "name"); err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(name)
		if err != nil {
			return nil, fmt.Errorf("name: %w", err)
		}
		return store(bind.NewAbstract(name))
	}
	if err := noOptions(rest, "port"); err != nil {
		return nil, err
	}
	return store(bind.NewPort(strings.TrimSuffix(rest, "/")))
}

// pathOf reads the part of a URL after the two slashes that names a file or a directory.
func pathOf(rest, what, example string) (string, error) {
	if err := noOptions(rest, what); err != nil {
		return "", err
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", fmt.Errorf("path: %w", err)
	case strings.Trim(path, "/") == "":
		return "", fmt.Errorf("path: a %s must be named, as in %s", what, example)
	case path[0] != '/':
		return "", fmt.Errorf("host: this store has none; the %s begins with a slash, as in %s", what, example)
	case strings.ContainsRune(path, 0):
		return "", errors.New("path: contains a zero byte")
	}
	return path, nil
}

func noOptions(rest, what string) error {
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return fmt.Errorf("options: this store has none, but there is %q (write %%3F or %%23 if it belongs to the %s's name)",
			locks.Printable(rest[i:], 40), what)
	}
	return nil
}
