package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golock/locks/lease"
	"golock/locks/network"
)

// The texts of etcd's errors (api/v3rpc/rpctypes/error.go), as far as golock tells them apart.
const (
	noAuth      = "authentication is not enabled"
	leaseExists = "lease already exists"
	noLease     = "requested lease not found"
	noKey       = "key not found"
	compacted   = "required revision has been compacted"
	badToken    = "invalid auth token"
	oldToken    = "revision in the request is not latest"
	oldAuth     = "revision of auth store is old"
)

// Codes of gRPC.
const (
	codeExhausted   = 8
	codeUnknownCall = 12
	codeUnavailable = 14
)

func isStatus(err error, text string) bool {
	s, ok := errors.AsType[*status](err)
	return ok && strings.Contains(s.text, text)
}

// isOldToken reports whether a new login helps.
func isOldToken(err error) bool {
	return isStatus(err, badToken) || isStatus(err, oldAuth)
}

// leavesMember reports whether another member, or another connection, may do better.
func leavesMember(err error) bool {
	s, ok := errors.AsType[*status](err)
	switch {
	case err == nil:
		return false
	case !ok:
		return !errors.Is(err, context.Canceled)
	}
	return s.code == codeUnavailable || isOldToken(err)
}

// errNoTLS is the error of a server that ends the handshake.
var errNoTLS = errors.New("no answer to the TLS handshake")

var errWantsTLS = errors.New("the server wants TLS")

// judge makes a Refusal of what the cluster says, and of what no other attempt would change. Other
// errors are outages.
func (s *Store) judge(err error) error {
	if err == nil || lease.IsFinal(err) || lease.IsPassing(err) {
		return err
	}
	if reply, ok := errors.AsType[*status](err); ok {
		return s.judgeStatus(reply)
	}
	if errors.Is(err, network.ErrTooLong) {
		hint := "under the prefix " + s.client.target.prefix + " are large values that golock has not written: golock clean removes them"
		return &lease.Refusal{Err: err, Hint: hint, Kind: lease.ForNewcomers}
	}
	if hint, bad := network.TLSHint(err); bad {
		if !s.client.target.TLS || strings.Contains(hint, "does not speak TLS") {
			hint = "the server does not speak TLS on this port: did you mean etcd:// in the place of etcds://?"
		}
		return &lease.Refusal{Err: err, Hint: hint}
	}
	switch {
	case errors.Is(err, errWantsTLS), !s.client.target.TLS && errors.Is(err, errNoHTTP2):
		return &lease.Refusal{Err: err, Hint: "expected a port for clients, 2379 by default; etcds:// if it speaks TLS"}
	case errors.Is(err, errNoHTTP2):
		return &lease.Refusal{Err: err, Hint: "expected a port for clients, 2379 by default"}
	case errors.Is(err, errClosed):
		return &lease.Refusal{Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return lease.NoAnswer{Cause: err}
	case errors.Is(err, errNoTLS):
		return &lease.Refusal{Err: err, Hint: "etcd:// in the place of etcds:// if it speaks no TLS", Kind: lease.Passing}
	case errors.Is(err, errMute) && !s.client.target.TLS:
		return &lease.Refusal{Err: err, Hint: "etcds:// if it speaks TLS", Kind: lease.Passing}
	case network.IsTurnedAway(err):
		return &lease.Refusal{Err: fmt.Errorf("the connection was closed: %w", err), Kind: lease.Passing}
	}
	return err
}

// judgeStatus judges an error that the cluster has answered.
func (s *Store) judgeStatus(err *status) error {
	t := s.client.target
	has := func(text string) bool { return strings.Contains(err.text, text) }
	role := "the user's role needs readwrite on this prefix: etcdctl role grant-permission ROLE readwrite --prefix=true " + t.prefix
	switch {
	case has("authentication failed"):
		return &lease.Refusal{Err: fmt.Errorf("login of the user %q is refused: %w", t.user, err), Hint: lease.LoginHint}
	case has("user name is empty"), has("user name not found"):
		return &lease.Refusal{Err: fmt.Errorf("the cluster wants a login, and the URL has none: %w", err), Hint: lease.LoginHint}
	case has("permission denied"):
		return &lease.Refusal{Err: err, Hint: role, Kind: lease.ForNewcomers}
	case has("database space exceeded"):
		hint := "its quota is used up, and it takes no new entries: etcdctl compact, defrag and alarm disarm, or a larger quota"
		return &lease.Refusal{Err: err, Hint: hint, Kind: lease.ForNewcomers}
	case has("corrupt"):
		return &lease.Refusal{Err: err, Hint: "a member has other data than the rest: etcdctl alarm list"}
	case has("request is too large"):
		return &lease.Refusal{Err: err, Hint: "too many entries were to be evicted in one step, or --max-request-bytes is small"}
	case has("too many operations"):
		return &lease.Refusal{Err: err, Hint: "too many entries were to be evicted in one step, or --max-txn-ops is small"}
	case has("lease TTL"):
		return &lease.Refusal{Err: err, Hint: "a shorter --ttl or --hold"}
	case err.code == codeUnavailable, err.code == codeExhausted, has(noLease), has(noKey), has(compacted), isOldToken(err), has(oldToken):
		return &lease.Refusal{Err: err, Kind: lease.Passing}
	case has("ended the request"), errors.Is(err, io.EOF):
		return &lease.Refusal{Err: err, Kind: lease.Passing}
	case err.code == codeUnknownCall:
		return &lease.Refusal{Err: err, Hint: "golock is made for etcd 3.4 and later"}
	}
	return &lease.Refusal{Err: err}
}
