//go:build integration

package sql

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// passing is a driver for which every error is the connection's.
type passing struct{ Driver }

func (passing) Judge(error) (Verdict, bool, string) { return Transient, false, "" }

// A server that said nothing is reported as that, whoever ended the attempt.
func TestNoAnswerInWords(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: Dialect{Driver: passing{}}}
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		err := s.judge(fmt.Errorf("read: %w", cause))
		if err.Error() != "no answer in time" || !errors.Is(err, cause) {
			t.Errorf("%v is reported as %q, want no answer in time", cause, err)
		}
	}
}
