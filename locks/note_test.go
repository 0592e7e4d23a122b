package locks

import (
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	long := strings.Repeat("é", MaxNote)
	for _, c := range []struct{ text, cleaned string }{
		{"", ""},
		{"https://ci.example/job/17?a=b&c=%20", "https://ci.example/job/17?a=b&c=%20"},
		{long, long},
		{long + "é", strings.Repeat("é", MaxNote-1) + "…"},
		{"a\nb", "a\ufffdb"},
		{"a\u009bb", "a\ufffdb"},           // a C1 control character
		{"\u202egnp.exe", "\ufffdgnp.exe"}, // turns the direction of writing
		{"a\u2028b", "a\ufffdb"},
		{"a\xffb", "a\ufffdb"},
	} {
		if got := CleanNote(c.text); got != c.cleaned {
			t.Errorf("%q: cleaned %q, expected %q", c.text, got, c.cleaned)
		}
		isGood := c.text == c.cleaned
		if err := CheckNote(c.text); (err == nil) != isGood {
			t.Errorf("%q: %v", c.text, err)
		}
		if err := CheckNote(c.cleaned); err != nil {
			t.Errorf("%q, cleaned: %v", c.text, err)
		}
	}
}
