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
	_, dir, err := pathOf(address, "directory")
	return local.New(dir), err
}

func openFiles(address string) (locks.Store, error) {
	scheme, dir, err := pathOf(address, "directory")
	return files.New(scheme, dir), err
}

func openLockFile(address string) (locks.Store, error) {
	scheme, file, err := pathOf(address, "file")
	return lockfile.New(lockfile.Family(scheme), file), err
}

// openBind tells the three kinds of addresses apart: a socket file, an abstract name, and a port.
func openBind(address string) (locks.Store, error) {
	rest, ok := strings.CutPrefix(address, "bind://")
	name, isName := strings.CutPrefix(rest, "@")
	switch {
	case !ok:
		return nil, errors.New("expected bind://127.0.0.1:PORT, bind:///SOCKET or bind://@NAME, with two slashes")
	case strings.HasPrefix(rest, "/"):
		_, file, err := pathOf(address, "file")
		if err != nil {
			return nil, err
		}
		return bind.NewSocket(file)
	case isName:
		if err := noOptions(name, "name"); err != nil {
			return nil, err
		}
		name, err := url.PathUnescape(name)
		if err != nil {
			return nil, fmt.Errorf("name: %w", err)
		}
		return bind.NewAbstract(name)
	}
	if err := noOptions(rest, "port"); err != nil {
		return nil, err
	}
	return bind.NewPort(strings.TrimSuffix(rest, "/"))
}

// pathOf returns the path in a URL of a file or directory, SCHEME:///PATH.
func pathOf(address, what string) (scheme, path string, err error) {
	scheme, rest, _ := strings.Cut(address, ":")
	form := scheme + ":///" + strings.ToUpper(what)
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return "", "", fmt.Errorf("expected %s, with two slashes and the absolute path", form)
	}
	if err := noOptions(rest, what); err != nil {
		return "", "", err
	}
	path, err = url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("path: %w", err)
	case strings.Trim(path, "/") == "":
		return "", "", fmt.Errorf("path: name a %s, as in %s", what, form)
	case path[0] != '/':
		return "", "", fmt.Errorf("host: this store has none; the %s begins with a slash, as in %s", what, form)
	case strings.ContainsRune(path, 0):
		return "", "", errors.New("path: contains a zero byte")
	}
	return scheme, path, nil
}

// noOptions refuses options in the rest of a URL. what is the thing that the rest names.
func noOptions(rest, what string) error {
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		return fmt.Errorf("options: this store has none, but there is %q (write %%3F or %%23 if it belongs to the %s's name)",
			locks.Printable(rest[i:], 40), what)
	}
	return nil
}
