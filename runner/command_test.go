package runner

import (
	"slices"
	"testing"

	"golock/locks"
	"golock/test/testkit"
)

// Only runs of the same lock enclose a run.
func TestEnclosing(t *testing.T) {
	outer, err := locks.NewRef("a")
	testkit.Must(t, err)
	other, err := locks.NewRef("b")
	testkit.Must(t, err)
	held := outer.String() + ",no ID," + other.String()
	if got := Enclosing(held, outer.Key); !slices.Equal(got, []locks.Ref{outer}) {
		t.Errorf("%v, want %v", got, outer)
	}
	if got := Enclosing("", outer.Key); got != nil {
		t.Errorf("%v without a run", got)
	}
}
