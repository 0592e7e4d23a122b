package locks

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "a/b", "../x", "%2F", "{a}", " ", "-x", ".", "ü", strings.Repeat("x", 255), strings.Repeat("é", 127)} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 256), strings.Repeat("é", 128), "a\nb", "a\x00", "\x7f", "a\u0085b", "\xff", "a\xc3"} {
		if CheckName(name) == nil {
			t.Errorf("CheckName(%q) accepts it", name)
		}
	}
}

func TestRefText(t *testing.T) {
	a, err := NewRef("x")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := NewRef("x")
	if a == b || a.Key != b.Key {
		t.Fatalf("two refs of one name: %v %v", a, b)
	}
	got, err := ParseRef(a.String())
	if err != nil || got != a {
		t.Fatalf("ParseRef(%s) = %v, %v", a, got, err)
	}
	for _, s := range []string{"", "x", a.String()[1:], a.String() + "0", strings.Replace(a.String(), "-", "0", 1), strings.Repeat("z", 32) + "-" + strings.Repeat("0", 32)} {
		if _, err := ParseRef(s); err == nil {
			t.Errorf("ParseRef(%q) accepts it", s)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("0123456789abcdef0123456789abcdef-0123456789abcdef0123456789abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err == nil && !strings.EqualFold(r.String(), s) {
			t.Fatalf("ParseRef(%q) = %s", s, r)
		}
	})
}

func TestPrintableKeepsTerminalsSafe(t *testing.T) {
	if got := Printable("a\x1b[2Jb\nc\u202ed", 99); got != "a�[2Jb�c�d" {
		t.Errorf("Printable = %q", got)
	}
	if got := Printable("abcdef", 3); got != "abc…" {
		t.Errorf("Printable = %q", got)
	}
}
