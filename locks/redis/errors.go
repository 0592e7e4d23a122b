package redis

import (
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks/lease"
	"golock/locks/network"
)

// judge makes a Refusal of what another attempt does not cure. What a server says
// while it starts, fails over, or is short of something passes; a refused login or a
// missing right does not. Errors of the connection pass, except those of a server
// that is not the one it should be.
func (s *Store) judge(err error) error {
	if err == nil {
		return nil
	}
	var reply goredis.Error
	if errors.As(err, &reply) {
		return s.judgeReply(reply)
	}
	if errors.Is(err, goredis.ErrClosed) { // the store
		return &lease.Refusal{Err: err}
	}
	if hint, bad := network.TLSHint(err); bad {
		return &lease.Refusal{Err: err, Hint: hint}
	}
	return err
}

// refusedLogin says whose login was refused. A server that wants one says so in several
// ways, one of them a fault of the protocol: a request too long for a stranger.
func (s *Store) refusedLogin(err error, stranger bool) error {
	t := s.target
	user := "the default user"
	if t.user != "" {
		user = fmt.Sprintf("the user %q", t.user)
	}
	hint := lease.LoginHint
	if t.kind == sentinel {
		hint += "; for the sentinels ?sentinel-user= and ?sentinel-password="
	}
	switch {
	case !stranger:
		err = fmt.Errorf("login of %s is refused: %w", user, err)
	case t.password == "":
		err = fmt.Errorf("the server wants a password for %s, and the URL has none", user)
	default:
		err = fmt.Errorf("the server wants another login than that of %s", user)
	}
	return &lease.Refusal{Err: err, Hint: hint}
}

func (s *Store) judgeReply(err goredis.Error) error {
	text := err.Error()
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "ASK", "NOREPLICAS", "MISCONF", "NOSCRIPT", "UNBLOCKED":
		return err
	case "MOVED", "CROSSSLOT":
		if s.target.kind == cluster {
			return err
		}
		return &lease.Refusal{Err: err, Hint: "the server is a node of a cluster: use redis+cluster://"}
	case "OOM":
		return &lease.Refusal{Err: err, Hint: "raise the server's maxmemory", Temporary: true}
	case "WRONGPASS", "NOAUTH":
		return s.refusedLogin(err, code == "NOAUTH")
	case "NOPERM":
		return &lease.Refusal{Err: err, Hint: "the user needs EVAL, EVALSHA and what they run, on the keys with the prefix " + s.target.prefix}
	case "ERR":
		// Redis 6 puts the code of a command that failed in a script further back.
		for _, passes := range []string{"-READONLY", "-MISCONF", "-NOREPLICAS", "max number of clients"} {
			if strings.Contains(text, passes) {
				return err
			}
		}
		if strings.Contains(text, "unauthenticated") {
			return s.refusedLogin(err, true)
		}
		if strings.Contains(text, "-OOM") {
			return &lease.Refusal{Err: err, Hint: "raise the server's maxmemory", Temporary: true}
		}
	}
	switch {
	case strings.Contains(text, "cluster support disabled"):
		return &lease.Refusal{Err: err, Hint: "the server is no node of a cluster: use redis://"}
	case strings.Contains(text, "unknown command 'sentinel'"):
		return &lease.Refusal{Err: err, Hint: "this is a server and no sentinel"}
	}
	return &lease.Refusal{Err: err}
}
