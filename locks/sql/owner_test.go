package sql

import (
	"strings"
	"testing"

	"golock/locks"
)

// Where the description of an owner does not fit, the end of its note or its command is missing, and nothing else.
func TestOwnerIsCut(t *testing.T) {
	note := strings.Repeat("é", locks.MaxNote)
	text := infoOf(locks.Request{User: "root", Command: []string{"job"}, Note: note})
	begin := strings.Index(text, noteField+"=") + len(noteField+"=")
	for size := begin; size <= len(text); size++ {
		o := parseOwner(text[:size])
		if o.User != "root" || o.PID == 0 {
			t.Fatalf("cut to %d of %d: %+v", size, len(text), o)
		}
		letters := strings.TrimSuffix(strings.ToValidUTF8(o.Note, ""), "�")
		if least := min(size-begin, len(note)*3)/6*2 - 2; len(letters) < least || !strings.HasPrefix(note, letters) {
			t.Fatalf("cut to %d of %d: note %q", size, len(text), o.Note)
		}
	}
	if o := parseOwner(text); o.Note != note || len(o.Command) != 1 {
		t.Errorf("%+v", o)
	}
}
