package runner

import (
	"slices"
	"strings"
	"testing"

	"golock/locks"
)

func TestEnvironment(t *testing.T) {
	outer, _ := locks.NewRef("outer")
	ref, _ := locks.NewRef("n")
	c := prepareCommand([]string{"true"}, []string{
		"A=1", "GOLOCK_STORE=mine", "GOLOCK_ID=old", "GOLOCK_SLOT=9", "GOLOCK_SLOTS=9", "GOLOCK_FENCE=9", "GOLOCK_LOCK_NAME=old", "GOLOCK_LOCK_STORE=old",
		"GOLOCK_HELD=" + outer.String(), "A=2", "NOVALUE",
	}, locks.Request{Ref: ref, Name: "n"}, "local")
	c.addGrant(locks.Grant{Ref: ref, Slots: []int{2, 3}, Fence: 7})
	want := []string{
		"A=1", "A=2", "GOLOCK_FENCE=7", "GOLOCK_HELD=" + outer.String() + "," + ref.String(), "GOLOCK_ID=" + ref.String(),
		"GOLOCK_LOCK_NAME=n", "GOLOCK_LOCK_STORE=local", "GOLOCK_SLOT=2", "GOLOCK_SLOTS=2,3", "GOLOCK_STORE=mine", "NOVALUE",
	}
	slices.Sort(c.env)
	if !slices.Equal(c.env, want) {
		t.Errorf("environment:\n%s\nwant:\n%s", strings.Join(c.env, "\n"), strings.Join(want, "\n"))
	}
	if got := Enclosing(outer.String() + ",junk," + ref.String()); !slices.Equal(got, []locks.Ref{outer, ref}) {
		t.Errorf("Enclosing = %v", got)
	}
}
