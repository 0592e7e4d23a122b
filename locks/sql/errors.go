package sql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
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

// located says which store an error is of, if it does not say so itself.
func (s *Store) located(err error) error {
	if isFinal(err) {
		return fmt.Errorf("%s: %w", s.URL(), err)
	}
	return err
}

// isPassing is the opposite, for somebody who holds or waits already: a server
// gets room again, and an outage never ends the waiting.
func isPassing(err error) bool {
	var r *refusal
	return !errors.As(err, &r) || r.may
}

// verdict is what the dialect thinks of an error, if it is the server's.
func (s *Store) verdict(err error) Verdict {
	if err == nil || isFinal(err) {
		return Passes
	}
	v, _, _ := s.dialect.Judge(err)
	return v
}

// said reports whether the server has answered, even if with an error.
func (s *Store) said(err error) bool {
	if isFinal(err) {
		return true
	}
	_, said, _ := s.dialect.Judge(err)
	return said
}

// judge makes what cannot be mended by trying again a refusal.
func (s *Store) judge(err error) error {
	if err == nil || isFinal(err) {
		return err
	}
	switch verdict, _, hint := s.dialect.Judge(err); verdict {
	case Refused:
		return &refusal{err: err, hint: hint}
	case MayPass:
		return &refusal{err: err, hint: hint, may: true}
	case NoRight:
		if hint == "" {
			hint = "the user needs SELECT, INSERT, UPDATE and DELETE on the table " + s.target.table
		}
		return &refusal{err: err, hint: hint}
	case OtherTable:
		return &refusal{err: fmt.Errorf("the table %s was made by another version of golock, or by hand: %w", s.target.table, err), hint: "use the same version everywhere, or another ?table="}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return noAnswer{err}
	}
	return err
}

// BadTLS reports whether an error says that the server is not the one that it
// should be, or does not take us for whom it should.
func BadTLS(err error) (hint string, bad bool) {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var noTLS tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "?ca=FILE names the authority that signed it, ?server-name= the name in it", true
	case errors.As(err, &alert):
		return "the server wants another certificate than ?cert=FILE&key=FILE give", true
	case errors.As(err, &noTLS):
		return "the server does not speak TLS on this port", true
	}
	return "", false
}
