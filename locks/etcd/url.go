package etcd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/network"
)

// target is a parsed URL.
type target struct {
	network.Options
	url            string // the URL without the password
	hosts          []string
	user, password string
	prefix         string // begins all keys; it ends with a slash
	dialTimeout    time.Duration
}

const example = "etcd://HOST1,HOST2,HOST3/PREFIX"

// defaultPrefix is the prefix, without its slash, of a URL without a path.
const defaultPrefix = "golock"

// parse parses a URL whose scheme is etcd or etcds. Its errors begin with the part that is wrong.
func parse(address string) (*target, error) {
	u, err := network.SplitURL(address, example)
	if err != nil {
		return nil, err
	}
	t := &target{
		Options: network.NewOptions(), url: u.Redacted(), user: u.User, password: u.Password,
		dialTimeout: dialLimit,
	}
	t.TLS = u.Scheme == "etcds"
	t.hosts, err = network.Hosts(u.Authority, "2379")
	if err != nil {
		return nil, err
	}
	if u.User == "" && u.Password != "" {
		return nil, errors.New("user: etcd has no password without one")
	}
	path, err := network.Unescape("path", strings.Trim(u.Path, "/"))
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = defaultPrefix
	}
	if strings.ContainsFunc(path, isControl) || len(path) > maxPrefix {
		return nil, fmt.Errorf("path: expected a prefix of keys of at most %d bytes, without control characters", maxPrefix)
	}
	t.prefix = path + "/"
	if err := u.EachOption(t.option); err != nil {
		return nil, err
	}
	return t, t.Check("TLS, as in etcds://")
}

// maxPrefix is the longest prefix in bytes.
const maxPrefix = 255

func isControl(r rune) bool { return locks.IsTerminalControl(r) }

func (t *target) option(name, value string) error {
	if name != "quarantine" {
		if known, err := t.Set(name, value); known {
			return err
		}
	}
	switch name {
	case "quarantine":
		return errors.New("option quarantine: a store with consensus forgets nothing, and has none")
	case "dial_timeout":
		return network.Timeout(name, value, &t.dialTimeout)
	}
	return fmt.Errorf("option %q: is not known: expected ca, cert, key, server-name or dial_timeout", locks.Printable(name, 20))
}
