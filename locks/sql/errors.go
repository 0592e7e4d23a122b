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
	errNoName     = errors.New("the name has no row") // when it was to be locked
	errNameExists = errors.New("somebody else has made the row of the name")
	errNoTableRow = errors.New("the table has no row of its own") // somebody has deleted it, most likely with all others
)

// diagnose says what an error means, and what the user can do.
func (s *Store) diagnose(err error) (v Verdict, hint string) {
	if err == nil || lease.IsFinal(err) {
		return Transient, ""
	}
	if hint, bad := network.TLSHint(err); bad {
		return Refused, hint
	}
	return s.dialect.Judge(err)
}

// Judge says what an error of the server's means.
func (d *Dialect) Judge(err error) (v Verdict, hint string) {
	code := d.Code(err)
	for _, m := range d.Errors {
		if slices.ContainsFunc(m.codes, func(begin string) bool { return strings.HasPrefix(code, begin) }) {
			return m.verdict, m.hint
		}
	}
	if network.IsTurnedAway(err) {
		return Passing, ""
	}
	return Transient, ""
}

func (s *Store) verdict(err error) Verdict {
	v, _ := s.diagnose(err)
	return v
}

// judge makes a Refusal of what the server says. An error without a meaning stays as it is: the
// server may not have been reached. changed is the kind of a refusal because of what somebody has
// changed in the table or in the user's rights.
func (s *Store) judge(err error, changed lease.RefusalKind) error {
	verdict, hint := s.diagnose(err)
	kind := lease.ForGood
	switch verdict {
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
