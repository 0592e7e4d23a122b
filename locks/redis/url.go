package redis

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/network"
)

// kind is a way to reach servers. The scheme has it after redis or rediss.
type kind string

const (
	tcp        kind = ""
	unixSocket kind = "+unix"
	sentinel   kind = "+sentinel"
	cluster    kind = "+cluster"
)

// target is a parsed URL.
type target struct {
	network.Options
	url      string // the URL without passwords
	kind     kind
	prefix   string
	replicas int // the number of replicas that must have a grant or a renewal before it counts
	client   goredis.UniversalOptions

	hasTimeouts bool // the URL has dial_timeout, read_timeout or write_timeout
}

// parse parses a URL whose scheme package open assigns to Redis. Its errors begin with the part
// that is wrong.
func parse(address string) (*target, error) {
	u, err := network.SplitURL(address, "redis://HOST:PORT/DB")
	if err != nil {
		return nil, err
	}
	t := &target{Options: network.NewOptions(), prefix: "golock", url: u.Redacted(), client: clientOptions()}
	t.client.Username, t.client.Password = u.User, u.Password
	rest := strings.TrimPrefix(u.Scheme, "redis")
	rest, t.TLS = strings.CutPrefix(rest, "s")
	t.kind = kind(rest)
	if err := t.place(u); err != nil {
		return nil, err
	}
	if err := u.EachOption(t.option); err != nil {
		return nil, err
	}
	switch {
	case t.kind == cluster && t.client.DB != 0:
		return nil, errors.New("db: a cluster has database 0 only")
	case t.kind != sentinel && t.client.SentinelUsername+t.client.SentinelPassword != "":
		return nil, errors.New("options sentinel-user and sentinel-password: only with redis+sentinel://")
	}
	return t, t.Check("TLS, as in rediss://")
}

// place parses hosts and path.
func (t *target) place(u network.URL) (err error) {
	port, db := "6379", u.Path
	switch t.kind {
	case unixSocket:
		if u.Authority != "" {
			return errors.New("host: a socket has none; its path begins with a slash, as in redis+unix:///run/redis.sock")
		}
		path, err := network.Unescape("path", "/"+u.Path)
		if err == nil && (path == "/" || strings.ContainsRune(path, 0)) {
			err = errors.New("path: the socket must be named, as in redis+unix:///run/redis.sock")
		}
		t.client.Addrs = []string{path}
		return err
	case tcp:
		if strings.Contains(u.Authority, ",") {
			return errors.New("host: one is enough here; redis+sentinel:// and redis+cluster:// take several")
		}
	case sentinel:
		port = "26379"
		master, rest, _ := strings.Cut(u.Path, "/")
		db = rest
		t.client.MasterName, err = url.PathUnescape(master)
		if err != nil || master == "" {
			return errors.New("path: the master's name must follow the hosts, as in redis+sentinel://h1,h2/MASTER/DB")
		}
	}
	t.client.Addrs, err = network.Hosts(u.Authority, port)
	if err != nil {
		return err
	}
	return t.database(db)
}

func (t *target) database(text string) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("db %q: expected a number from 0, as in redis://HOST/0", locks.Printable(text, 20))
	}
	t.client.DB = int(n)
	return nil
}

// option sets an option of the URL.
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
			return fmt.Errorf("option min-replicas=%q: expected a number from 1 to 255", locks.Printable(value, 20))
		}
		t.replicas = int(n)
	case "prefix":
		if value == "" || strings.ContainsAny(value, "{}") {
			return errors.New("option prefix: must not be empty and has no braces")
		}
		t.prefix = value
	case "dial_timeout":
		t.hasTimeouts = true
		return network.Timeout(name, value, &t.client.DialTimeout)
	case "read_timeout":
		t.hasTimeouts = true
		return network.Timeout(name, value, &t.client.ReadTimeout)
	case "write_timeout":
		t.hasTimeouts = true
		return network.Timeout(name, value, &t.client.WriteTimeout)
	case "protocol": // either will do
		if value != "2" && value != "3" {
			return fmt.Errorf("option protocol=%q: expected 2 or 3", locks.Printable(value, 20))
		}
	case "skip_verify":
		if value != "false" {
			return errors.New("option skip_verify: the server is always verified: " +
				"ca=FILE names the authority that signed its certificate")
		}
	case "sentinel-user":
		return network.Text(name, value, &t.client.SentinelUsername)
	case "sentinel-password":
		return network.Text(name, value, &t.client.SentinelPassword)
	default:
		return fmt.Errorf("option %q: is not known: expected db, prefix, quarantine, min-replicas, ca, cert, key, "+
			"server-name, sentinel-user, sentinel-password, dial_timeout, read_timeout or write_timeout",
			locks.Printable(name, 20))
	}
	return nil
}
