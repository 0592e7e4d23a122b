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
	errNoName     = errors.New("the name has no row")             // when it was to be locked
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
	return Transient, ""
}

func (s *Store) verdict(err error) Verdict {
	v, _ := s.diagnose(err)
	return v
}

// judge makes a Refusal of an error that another attempt does not cure.
func (s *Store) judge(err error) error {
	verdict, hint := s.diagnose(err)
	switch verdict {
	case Refused, Temporary:
	case NoRight:
		hint = "the user needs SELECT, INSERT, UPDATE and DELETE on the table " + s.target.table
	case OtherTable:
		err = fmt.Errorf("the table %s was made by another version of golock, or by hand: %w", s.target.table, err)
		hint = "use the same version everywhere: stop all others and drop the table, or name another ?table="
	default:
		if !lease.IsFinal(err) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
			return lease.NoAnswer{Cause: err}
		}
		return err
	}
	return &lease.Refusal{Err: err, Hint: hint, Temporary: verdict == Temporary}
}

func refusal(format string, args ...any) error {
	return &lease.Refusal{Err: fmt.Errorf(format, args...)}
}
