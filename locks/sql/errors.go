package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golock/locks/lease"
	"golock/locks/network"
)

var (
	errNoName     = errors.New("the name has no row") // the step was to lock it
	errNameExists = errors.New("somebody else has made the row of the name")
	errNoTableRow = errors.New("the table has no row of its own") // somebody has deleted it, most likely with all others
)

// kindAndHint returns the kind of an error, which may be nil, and a hint for the user.
func (s *Store) kindAndHint(err error) (kind ErrorKind, hint string) {
	if err == nil || lease.IsFinal(err) {
		return Transient, ""
	}
	if hint, bad := network.TLSHint(err); bad {
		return Refused, hint
	}
	return s.dialect.KindOf(err)
}

// KindOf returns the kind of an error of the server, and a hint for the user.
func (d *Dialect) KindOf(err error) (kind ErrorKind, hint string) {
	code := d.Code(err)
	for _, m := range d.Errors {
		if slices.ContainsFunc(m.codes, func(begin string) bool { return strings.HasPrefix(code, begin) }) {
			return m.kind, m.hint
		}
	}
	if network.IsTurnedAway(err) {
		return Passing, ""
	}
	return Transient, ""
}

func (s *Store) kindOf(err error) ErrorKind {
	kind, _ := s.kindAndHint(err)
	return kind
}

// asRefusal turns an error of the server into a Refusal. changed is the kind for what somebody else may
// undo: a missing right, or a table of another version. An attempt that ran out of time becomes a
// NoAnswer. Any other error is returned unchanged: the server may not have been reached.
func (s *Store) asRefusal(err error, changed lease.RefusalKind) error {
	errorKind, hint := s.kindAndHint(err)
	kind := lease.ForGood
	switch errorKind {
	case Refused:
	case Passing, AtOnce: // AtOnce comes here after enough attempts
		kind = lease.Passing
	case ForNewcomers:
		kind = lease.ForNewcomers
	case Standby:
		kind = lease.Standby
	case NoRight:
		kind = changed
		hint = "the user needs SELECT, INSERT, UPDATE and DELETE on the table " + s.target.table
	case OtherTable:
		kind = changed
		err = fmt.Errorf("the table %s was made by another version of golock, or by hand: %w", s.target.table, err)
		hint = "use the same version everywhere: stop all others and drop the table, or name another ?table="
	default:
		if !lease.IsFinal(err) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
			return lease.NoAnswer{Cause: err}
		}
		return err
	}
	return &lease.Refusal{Err: err, Hint: hint, Kind: kind}
}

func refusal(format string, args ...any) error {
	return &lease.Refusal{Err: fmt.Errorf(format, args...)}
}
