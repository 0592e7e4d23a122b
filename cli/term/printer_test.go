package term

import (
	"encoding/json"
	"testing"
)

// Messages leave out the password of a URL, whatever surrounds the URL. Other texts stay unchanged.
func TestWithoutPasswords(t *testing.T) {
	for text, want := range map[string]string{
		`--max: "redis://job:pw@host/0" is not an integer`: `--max: "redis://job:…@host/0" is not an integer`,
		"redis://:pw@h and mysql://a:b:c@h/d, x":           "redis://:…@h and mysql://a:…@h/d, x",
		"redis://u:p@w/x@h":                                "redis://u:…@h",
		"a://b://u:p@h":                                    "a://b:…@h",
		"redis://u:pw@":                                    "redis://u:…@",
		"redis://job@host:6379/0":                          "redis://job@host:6379/0",
		"redis://host:6379 refused":                        "redis://host:6379 refused",
		"bind://@name":                                     "bind://@name",
		"bind://127.0.0.1:7 by a@b":                        "bind://127.0.0.1:7 by a@b",
		"://":                                              "://",
		"u:p@h":                                            "u:p@h",
		"":                                                 "",
	} {
		if got := withoutPasswords(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// A decoder reads back what JSONText was given, and the text contains no character that steers a
// terminal.
func TestHarmlessJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "\u009b31m", "a\u202eb\u2066\u061c\u200f", "\x7f\x00\x1b", "ä\U0001f512 \u2028", `"\`} {
		got := JSONText([]string{text}, "  ")
		for _, r := range got {
			if r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r == 0x2066 || r == 0x61c || r == 0x200f {
				t.Errorf("%q: %U in %q", text, r, got)
			}
		}
		var back []string
		if err := json.Unmarshal([]byte(got), &back); err != nil || len(back) != 1 || back[0] != text {
			t.Errorf("%q became %q, %v", text, back, err)
		}
		if again := JSON(text); json.Unmarshal([]byte(again), &text) != nil || text != back[0] {
			t.Errorf("%q in a line: %s", text, again)
		}
	}
}
