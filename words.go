package main

import (
	"fmt"

	"github.com/alecthomas/kong"
)

// Arguments are bytes, not text: a file name need not be UTF-8. Kong's own
// strings go through JSON, which replaces what is not; these types take an
// argument as it is.

// word is the value of a flag.
type word string

// Decode implements kong.MapperValue.
func (w *word) Decode(ctx *kong.DecodeContext) error {
	if next := raw(ctx.Scan.Peek()); isNegative(next) { // kong takes it for a flag
		ctx.Scan.Pop()
		*w = word(next)
		return nil
	}
	token, err := ctx.Scan.PopValue("a")
	if err != nil {
		return err
	}
	*w = word(raw(token))
	return nil
}

// isNegative reports whether a word is a number below zero, and no flag.
func isNegative(s string) bool {
	return len(s) > 1 && s[0] == '-' && s[1] >= '0' && s[1] <= '9'
}

// toggle is a flag without a value: "" if it was not given, else "true", or
// "false" by --flag=false, which takes back what a file says.
type toggle string

// IsBool implements kong.BoolMapperValue.
func (t *toggle) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (t *toggle) Decode(ctx *kong.DecodeContext) error {
	*t = "true"
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		return nil
	}
	switch value := raw(ctx.Scan.Pop()); value {
	case "true", "false":
		*t = toggle(value)
	default:
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

// words are the values of a flag that may be given several times.
type words []string

// Decode implements kong.MapperValue.
func (w *words) Decode(ctx *kong.DecodeContext) error {
	var one word
	if err := one.Decode(ctx); err != nil {
		return err
	}
	*w = append(*w, string(one))
	return nil
}

// rest is everything that is left of the command line.
type rest []string

// Decode implements kong.MapperValue.
func (r *rest) Decode(ctx *kong.DecodeContext) error {
	for !ctx.Scan.Peek().IsEOL() {
		*r = append(*r, raw(ctx.Scan.Pop()))
	}
	return nil
}

func raw(token kong.Token) string {
	if s, ok := token.Value.(string); ok {
		return s
	}
	return fmt.Sprint(token.Value)
}
