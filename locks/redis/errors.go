package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// refusal is an error that does not go away by trying again.
type refusal struct {
	err  error
	hint string // what the user can do
	may  bool   // it may go away for who has an entry already
}

func (e *refusal) Error() string {
	if e.hint == "" {
		return e.err.Error()
	}
	return strings.TrimRight(e.err.Error(), ". ") + " (" + e.hint + ")"
}

func (e *refusal) Unwrap() error { return e.err }

// isFinal reports whether there is no point in another attempt.
func isFinal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// mayPass is isFinal for somebody who holds or waits already: a server gets
// memory again, and an outage never ends the waiting.
func mayPass(err error) bool {
	var r *refusal
	return !errors.As(err, &r) || r.may
}

// judge makes what cannot be mended by trying again a refusal. What a server
// says while it starts, fails over, or is short of something passes; a refused
// login or a missing right does not. Errors of the connection pass, except
// those of a server that is not the one it should be.
func (s *Store) judge(err error) error {
	var said goredis.Error
	if errors.As(err, &said) {
		return s.judgeReply(said)
	}
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var noTLS tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority):
		return &refusal{err: err, hint: "?ca=FILE names the authority that signed it, ?server-name= the name in it"}
	case errors.As(err, &alert):
		return &refusal{err: err, hint: "the server wants another certificate than ?cert=FILE&key=FILE give"}
	case errors.As(err, &noTLS):
		return &refusal{err: err, hint: "the server does not speak TLS on this port"}
	}
	return err
}

const needLogin = "user and password stand before the host, as in redis://user:password@host"

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
		return &refusal{err: err, hint: "the server is a node of a cluster: use redis+cluster://"}
	case "OOM":
		return &refusal{err: err, hint: "raise the server's maxmemory", may: true}
	case "WRONGPASS", "NOAUTH":
		return &refusal{err: err, hint: needLogin}
	case "NOPERM":
		return &refusal{err: err, hint: "the user needs EVAL, EVALSHA and what they run, on the keys with the prefix " + s.target.prefix}
	case "ERR":
		// Redis 6 puts the code of a command that failed in a script further back.
		for _, passes := range []string{"-READONLY", "-MISCONF", "-NOREPLICAS", "max number of clients"} {
			if strings.Contains(text, passes) {
				return err
			}
		}
		if strings.Contains(text, "unauthenticated") { // a request too long for a stranger
			return &refusal{err: err, hint: needLogin}
		}
		if strings.Contains(text, "-OOM") {
			return &refusal{err: err, hint: "raise the server's maxmemory", may: true}
		}
	}
	switch {
	case strings.Contains(text, "cluster support disabled"):
		return &refusal{err: err, hint: "the server is no node of a cluster: use redis://"}
	case strings.Contains(text, "unknown command 'sentinel'"):
		return &refusal{err: err, hint: "this is a server and no sentinel"}
	}
	return &refusal{err: err}
}
