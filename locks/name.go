package locks

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxName is the longest name, in bytes.
const MaxName = 255

// CheckName returns an error if a name is not allowed: it must be 1 to 255 bytes of UTF-8 without control
// characters. Names that differ in any byte are different locks.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty")
	case len(name) > MaxName:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(name), MaxName)
	case !utf8.ValidString(name):
		return errors.New("is not valid UTF-8")
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Errorf("contains the control character %U", r)
		}
	}
	return nil
}

// Printable shortens s to at most limit runes on one line, and replaces control characters: a text that
// others wrote into a store must not control a terminal.
func Printable(s string, limit int) string {
	runes := []rune(s)
	if len(runes) > limit {
		runes = append(runes[:limit], '…')
	}
	for i, r := range runes {
		if IsTerminalControl(r) {
			runes[i] = '\ufffd'
		}
	}
	return string(runes)
}

// IsTerminalControl reports whether a character controls a terminal or the order in which text is read:
// control characters, ends of lines, and characters that change the direction of writing (Unicode
// Standard Annex 9).
func IsTerminalControl(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Ref names one entry of one lock, in no particular store. It holds no secret.
type Ref struct {
	Key Key
	ID  ID
}

// ID is 128 random bits, new for every entry.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Key is the FNV-1a hash of a name, with 128 bits. It stands for the name where the name itself does not
// fit. Somebody can make up names that collide, so a store keeps the name beside the key and compares it.
// (A cryptographic hash would cost a start more than taking the lock does.)
type Key [16]byte

// KeyOf is the key of a name.
func KeyOf(name string) Key {
	h := fnv.New128a()
	h.Write([]byte(name))
	return Key(h.Sum(nil))
}

func (k Key) String() string { return hex.EncodeToString(k[:]) }

// NewRef makes the reference of a new entry. It fails only if the kernel has
// no random numbers to give.
func NewRef(name string) (Ref, error) {
	r := Ref{Key: KeyOf(name)}
	for {
		// unix.Getrandom would set up a generator in this process, which pays only for many calls. The
		// kernel never returns only a part of so few bytes.
		_, _, errno := unix.Syscall(unix.SYS_GETRANDOM, uintptr(unsafe.Pointer(&r.ID)), unsafe.Sizeof(r.ID), 0)
		switch errno {
		case 0:
			return r, nil
		case unix.EINTR:
		default:
			return Ref{}, fmt.Errorf("getrandom: %w", errno)
		}
	}
}

// Beside returns the reference that the same run has in the queue of another lock. The IDs of a run
// differ, because some stores use an ID without its key. Each reference is enough to compute all others.
func (r Ref) Beside(lock Key) Ref {
	other := Ref{Key: lock}
	for i := range other.ID {
		other.ID[i] = r.ID[i] ^ r.Key[i] ^ lock[i]
	}
	return other
}

// IsOfRun reports whether two entries are of one run (Beside).
func (r Ref) IsOfRun(other Ref) bool { return r.Beside(other.Key) == other }

// String is the form that users see as GOLOCK_ID.
func (r Ref) String() string { return r.Key.String() + "-" + r.ID.String() }

// ParseRef reads what String wrote.
func ParseRef(s string) (Ref, error) {
	key, id, _ := strings.Cut(s, "-")
	b, err := hex.DecodeString(key + id)
	if err != nil || len(key) != 32 || len(id) != 32 {
		return Ref{}, fmt.Errorf("%q is not an ID: expected 32 hexadecimal digits, a dash and 32 more", Printable(s, 80))
	}
	return Ref{Key: Key(b[:16]), ID: ID(b[16:])}, nil
}
