package redis

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks/lease"
	"golock/locks/network"
)

// asRefusal turns an error into a Refusal if the server has sent it or has turned the client away, or if another
// attempt would fail too. It returns any other error unchanged: the server may not have been reached.
func (s *Store) asRefusal(err error) error {
	var reply goredis.Error
	if errors.As(err, &reply) {
		return s.replyAsRefusal(reply)
	}
	if errors.Is(err, goredis.ErrClosed) { // the store was closed
		return &lease.Refusal{Err: err}
	}
	if hint, bad := network.TLSHint(err); bad {
		return &lease.Refusal{Err: err, Hint: hint}
	}
	if network.IsTurnedAway(err) {
		return &lease.Refusal{Err: err, Kind: lease.Passing}
	}
	return err
}

// replyAsRefusal turns an error that the server has sent into a Refusal.
func (s *Store) replyAsRefusal(err goredis.Error) error {
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	code, _, _ := strings.Cut(text, " ")
	// Redis 6 puts the error code of a command in a script after other text.
	if _, inner, ok := strings.Cut(text, ": -"); ok && code == "ERR" {
		code, _, _ = strings.Cut(inner, " ")
	}
	hint := ""
	// With these codes the server says that it starts, fails over, or lacks a resource.
	passing := "LOADING BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN ASK NOREPLICAS MISCONF NOSCRIPT UNBLOCKED"
	switch {
	case slices.Contains(strings.Fields(passing), code), code == "ERR" && has("max number of clients"),
		code == "MOVED" && s.target.kind == cluster:
		return &lease.Refusal{Err: err, Kind: lease.Passing}
	case code == "READONLY":
		return &lease.Refusal{
			Err: err, Kind: lease.Standby, Hint: "if it is a replica, name the master, or use redis+sentinel://",
		}
	case code == "MOVED", code == "CROSSSLOT":
		hint = "the server is a node of a cluster: use redis+cluster://"
	case code == "OOM":
		return &lease.Refusal{Err: err, Hint: "raise the server's maxmemory", Kind: lease.ForNewcomers}
	case code == "WRONGPASS", code == "NOAUTH", code == "ERR" && has("unauthenticated"):
		return s.refusedLogin(err, code != "WRONGPASS")
	case code == "NOPERM":
		hint = "the user needs EVAL, EVALSHA and what they run, on the keys with the prefix " + s.target.prefix
	case has("cluster support disabled"):
		hint = "the server is no node of a cluster: use redis://"
	case has("unknown command 'sentinel'"):
		hint = "this is a server and no sentinel"
	case code == "WRONGTYPE", has("user_script"): // the script has found data that it has not written
		return &lease.Refusal{
			Err: err, Kind: lease.ForNewcomers,
			Hint: "somebody has changed the keys that begin with " + s.target.prefix +
				": golock clean NAME removes what is not a lock",
		}
	}
	return &lease.Refusal{Err: err, Hint: hint}
}

// refusedLogin says whose login was refused. isAnonymous says that the server wants a login before it answers.
// Servers say so in several ways. One is an error that the request is too long for a client that has not
// logged in.
func (s *Store) refusedLogin(err error, isAnonymous bool) error {
	t := s.target
	user := "the default user"
	if t.client.Username != "" {
		user = fmt.Sprintf("the user %q", t.client.Username)
	}
	hint := lease.LoginHint
	if t.kind == sentinel {
		hint += "; for the sentinels ?sentinel-user= and ?sentinel-password="
	}
	switch {
	case !isAnonymous:
		err = fmt.Errorf("login of %s is refused: %w", user, err)
	case t.client.Password == "":
		err = fmt.Errorf("the server wants a password for %s, and the URL has none", user)
	default:
		err = fmt.Errorf("the server wants another login than that of %s", user)
	}
	return &lease.Refusal{Err: err, Hint: hint}
}
