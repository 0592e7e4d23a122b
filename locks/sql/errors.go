package sql

import (
	"context"
	"errors"
	"fmt"

	"golock/locks/lease"
)

// verdict is what the dialect makes of an error, if it is the server's.
func (s *Store) verdict(err error) Verdict {
	if err == nil || lease.IsFinal(err) {
		return Transient
	}
	v, _, _ := s.dialect.Judge(err)
	return v
}

// answered reports whether the server has said something, even if an error.
func (s *Store) answered(err error) bool {
	if lease.IsFinal(err) {
		return true
	}
	_, said, _ := s.dialect.Judge(err)
	return said
}

// judge makes a Refusal of what another attempt does not cure.
func (s *Store) judge(err error) error {
	if err == nil || lease.IsFinal(err) {
		return err
	}
	switch verdict, _, hint := s.dialect.Judge(err); verdict {
	case Refused:
		return &lease.Refusal{Err: err, Hint: hint}
	case Temporary:
		return &lease.Refusal{Err: err, Hint: hint, Temporary: true}
	case NoRight:
		if hint == "" {
			hint = "the user needs SELECT, INSERT, UPDATE and DELETE on the table " + s.target.table
		}
		return &lease.Refusal{Err: err, Hint: hint}
	case OtherTable:
		return &lease.Refusal{Err: fmt.Errorf("the table %s was made by another version of golock, or by hand: %w", s.target.table, err), Hint: "use the same version everywhere: stop all others and drop the table, or name another ?table="}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return lease.NoAnswer{Cause: err}
	}
	return err
}

func refusal(format string, args ...any) error {
	return &lease.Refusal{Err: fmt.Errorf(format, args...)}
}
