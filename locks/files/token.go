package files

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golock/locks"
)

// kind is what a token stands for: the first letter of its name.
type kind byte

// The kinds of tokens.
const (
	isNew   kind = 'n'
	chooses kind = 'c'
	waits   kind = 'q'
	holds   kind = 'h'
	goes    kind = 'x'
)

// token is one name in a line.
type token struct {
	kind   kind
	ticket int64  // 0 before one was chosen
	id     string // the entry's: the Ref's in hexadecimal, a dash, and which attempt of it this is
}

// entryID names the n-th entry that is made for a ref: one that was taken for
// dead does not come back under a name that somebody may be removing.
func entryID(ref locks.Ref, n int) string {
	return hex.EncodeToString(ref.ID[:]) + "-" + strconv.Itoa(n)
}

func (t token) String() string {
	if t.kind == isNew || t.kind == chooses {
		return string(rune(t.kind)) + "." + t.id
	}
	return fmt.Sprintf("%c.%012d.%s", t.kind, t.ticket, t.id)
}

// as is the same entry's token of another kind.
func (t token) as(k kind) token {
	t.kind = k
	return t
}

// of reports whether the token is an entry of a ref.
func (t token) of(ref locks.Ref) bool {
	return strings.HasPrefix(t.id, hex.EncodeToString(ref.ID[:])+"-")
}

// refID is the part of the entry's name that comes from its Ref.
func (t token) refID() (id [16]byte) {
	text, _, _ := strings.Cut(t.id, "-")
	_, _ = hex.Decode(id[:], []byte(text))
	return id
}

// parseToken reads what String wrote. Every other name in a line is foreign and
// is left alone.
func parseToken(name string) (token, bool) {
	if len(name) < 3 || len(name) > 128 || name[1] != '.' || !strings.ContainsRune("ncqhx", rune(name[0])) {
		return token{}, false
	}
	t := token{kind: kind(name[0])}
	t.id = name[2:]
	if t.kind != isNew && t.kind != chooses {
		ticket, id, _ := strings.Cut(t.id, ".")
		n, err := strconv.ParseInt(ticket, 10, 64)
		if err != nil || n < 0 {
			return token{}, false
		}
		t.ticket, t.id = n, id
	}
	id, attempt, _ := strings.Cut(t.id, "-")
	if _, err := hex.DecodeString(id); err != nil || len(id) != 32 {
		return token{}, false
	}
	if n, err := strconv.Atoi(attempt); err != nil || n < 0 {
		return token{}, false
	}
	return t, t.String() == name
}
