package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golock/locks/lease"
	"golock/locks/network"
)

// These are the texts of etcd's errors (api/v3rpc/rpctypes/error.go) that golock tells apart.
const (
	noAuth      = "authentication is not enabled"
	leaseExists = "lease already exists"
	noLease     = "requested lease not found"
	noKey       = "key not found"
	compacted   = "required revision has been compacted"
	badToken    = "invalid auth token"
	noUser      = "user name is empty"
	oldToken    = "revision in the request is not latest"
	oldAuth     = "revision of auth store is old"
	noLeader    = "no leader"
	notLeader   = "not leader"
	learnerOnly = "not supported for learner"
	tooMany     = "too many requests"
	noSpace     = "database space exceeded"
)

// These are codes of gRPC that golock tells apart.
const (
	codeCanceled    = 1
	codeUnknown     = 2
	codeDeadline    = 4
	codeExhausted   = 8
	codeAborted     = 10
	codeUnknownCall = 12
	codeInternal    = 13
	codeUnavailable = 14
)

func isStatus(err error, text string) bool {
	s, ok := errors.AsType[*status](err)
	return ok && strings.Contains(s.text, text)
}

// isOldToken reports whether the token of the login is not valid any more, so that a new login helps.
func isOldToken(err error) bool {
	return isStatus(err, badToken) || isStatus(err, oldAuth) || isStatus(err, noUser)
}

// shouldLeaveMember reports whether another member, or a new connection, may succeed where a call failed.
func shouldLeaveMember(err error) bool {
	s, ok := errors.AsType[*status](err)
	switch {
	case err == nil:
		return false
	case !ok:
		return !errors.Is(err, context.Canceled)
	}
	return s.isOfMember() || isOldToken(err)
}

// isOfMember reports whether another member may answer otherwise. An error that etcd has no code for, such as a dropped
// proposal while the leader changes, is unknown to gRPC.
func (s *status) isOfMember() bool {
	switch s.code {
	case codeCanceled, codeUnknown, codeDeadline, codeAborted, codeInternal, codeUnavailable:
		return true
	}
	return strings.Contains(s.text, notLeader) || strings.Contains(s.text, learnerOnly)
}

// errNoTLS is the error of a server that closes the connection during the handshake.
var errNoTLS = errors.New("no answer to the TLS handshake")

// errWantsTLS is the error of a server that answers with an alert of TLS.
var errWantsTLS = errors.New("the server wants TLS")

// asRefusal turns an answer of the cluster, and an error that another attempt would meet again, into a
// Refusal. It returns other errors unchanged: they are outages.
func (s *Store) asRefusal(err error) error {
	if err == nil || lease.IsFinal(err) || lease.IsPassing(err) {
		return err
	}
	if reply, ok := errors.AsType[*status](err); ok {
		return s.refusalOf(reply)
	}
	if errors.Is(err, network.ErrTooLong) {
		hint := "under the prefix " + s.client.target.prefix + " are large values that golock has not written: golock clean removes them"
		return &lease.Refusal{Err: err, Hint: hint, Kind: lease.ForNewcomers}
	}
	if hint, isTLS := network.TLSHint(err); isTLS {
		if !s.client.target.TLS || strings.Contains(hint, "does not speak TLS") {
			hint = "the server does not speak TLS on this port: did you mean etcd:// in the place of etcds://?"
		}
		return &lease.Refusal{Err: err, Hint: hint, Kind: lease.ForNewcomers}
	}
	switch {
	case errors.Is(err, errWantsTLS), !s.client.target.TLS && errors.Is(err, errNoHTTP2):
		return &lease.Refusal{Err: err, Hint: "expected a port for clients, 2379 by default; etcds:// if it speaks TLS", Kind: lease.ForNewcomers}
	case errors.Is(err, errNoHTTP2):
		return &lease.Refusal{Err: err, Hint: "expected a port for clients, 2379 by default", Kind: lease.ForNewcomers}
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

// refusalOf returns the Refusal for an error that the cluster has answered.
func (s *Store) refusalOf(err *status) error {
	t := s.client.target
	has := func(text string) bool { return strings.Contains(err.text, text) }
	role := "the user's role needs readwrite on this prefix: etcdctl role grant-permission ROLE readwrite --prefix=true " + t.prefix
	switch {
	case has("authentication failed"):
		return &lease.Refusal{Err: fmt.Errorf("login of the user %q is refused: %w", t.user, err), Hint: lease.LoginHint}
	case t.user == "" && has(noUser), has("user name not found"):
		return &lease.Refusal{Err: fmt.Errorf("the cluster wants a login, and the URL has none: %w", err), Hint: lease.LoginHint}
	case has("permission denied"):
		return &lease.Refusal{Err: err, Hint: role, Kind: lease.ForNewcomers}
	case has(noSpace):
		hint := "its quota is used up, and it takes no new entries: etcdctl compact, defrag and alarm disarm, or a larger quota"
		return &lease.Refusal{Err: err, Hint: hint, Kind: lease.ForNewcomers}
	case has("corrupt"):
		return &lease.Refusal{Err: err, Hint: "a member has other data than the rest: etcdctl alarm list", Kind: lease.ForNewcomers}
	case has("request is too large"):
		return &lease.Refusal{Err: err, Hint: "a long note or --show-args, too many entries to evict in one step, or a small --max-request-bytes of etcd"}
	case has("too many operations"):
		return &lease.Refusal{Err: err, Hint: "too many entries to evict in one step, or a small --max-txn-ops of etcd"}
	case has("lease TTL"):
		return &lease.Refusal{Err: err, Hint: "a shorter --ttl or --hold"}
	// Authentication may have been enabled after the login, which then gave no token.
	case err.isOfMember(), err.code == codeExhausted, has(noLease), has(noKey), has(compacted), isOldToken(err), has(oldToken):
		return &lease.Refusal{Err: err, Hint: passingHint(err.text), Kind: lease.Passing}
	case err.code == codeUnknownCall:
		return &lease.Refusal{Err: err, Hint: "golock is made for etcd 3.4 and later"}
	}
	return &lease.Refusal{Err: err}
}

// passingHint returns what the user can do if an error that should pass does not pass.
func passingHint(text string) string {
	for _, one := range []struct{ text, hint string }{
		{noLeader, "more than half of the members must be up and reach each other"},
		{learnerOnly, "leave the learner out of the URL"},
		{tooMany, "the cluster gets more than its disks can write"},
		{noLease, "a lease has ended while a request was on its way: a longer --ttl"},
		{compacted, "a request took longer than the cluster keeps its history: a longer --auto-compaction-retention"},
	} {
		if strings.Contains(text, one.text) {
			return one.hint
		}
	}
	return ""
}
