package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// isTable reports whether a file can have a table of that path: [defaults],
// [lock."NAME"], or the [lock] around the latter.
func isTable(path []string) bool {
	switch len(path) {
	case 1:
		return path[0] == "defaults" || path[0] == "lock"
	case 2:
		return path[0] == "lock"
	}
	return false
}

func unknownTable(path []string) string {
	text := fmt.Sprintf("unknown table [%s]", display(path))
	near := nearest(path[0], []string{"defaults", "lock"})
	corrected := append([]string{near}, path[1:]...)
	switch {
	case path[0] == "lock" && len(path) > 2:
		return fmt.Sprintf("%s: a name with dots needs quotes, [%s]", text, display([]string{"lock", strings.Join(path[1:], ".")}))
	case near != path[0] && isTable(corrected):
		return fmt.Sprintf("%s, did you mean [%s]?", text, display(corrected))
	}
	return text + `: there are [defaults] and [lock."NAME"]`
}

// misplaced says what is wrong with a value that does not stand directly in
// [defaults] or a [lock."NAME"].
func misplaced(path []string, settings []Setting) string {
	switch {
	case len(path) == 2 && path[0] == "lock":
		return fmt.Sprintf(`lock.%s must be a table: settings stand in [lock."NAME"]`, display(path[1:]))
	case isTable(path):
		return fmt.Sprintf("%s must be a table", path[0])
	case len(path) == 1:
		if _, problem := lookUp(path[0], settings); problem != "" {
			return problem
		}
		return fmt.Sprintf(`%s stands outside of a table: put it below [defaults] or [lock."NAME"]`, path[0])
	case isTable(path[:2]):
		return fmt.Sprintf("unknown setting %q", display(path[2:]))
	case isTable(path[:1]):
		return fmt.Sprintf("unknown setting %q", display(path[1:]))
	}
	return unknownTable(path[:len(path)-1])
}

// lookUp finds a setting that a file may give, or says why there is none.
func lookUp(key string, settings []Setting) (s Setting, problem string) {
	var known []string
	for _, s := range settings {
		switch {
		case !s.NotInFile:
			if s.Key == key {
				return s, ""
			}
			known = append(known, s.Key)
		case s.Key == key && s.Env != "":
			return s, fmt.Sprintf("%s cannot stand in a file: use --%s or %s", key, key, s.Env)
		case s.Key == key:
			return s, fmt.Sprintf("%s cannot stand in a file: use --%s", key, key)
		}
	}
	if near := nearest(key, known); near != "" {
		return s, fmt.Sprintf("unknown setting %q, did you mean %s?", key, near)
	}
	return s, fmt.Sprintf("unknown setting %q: settings are named as the flags are, without the dashes", key)
}

// textsOf returns a value in the form that a flag would have given it, or what
// is wrong with it.
func textsOf(kind Kind, value *unstable.Node) (texts []string, problem string) {
	elements := []*unstable.Node{value}
	if kind == List && value.Kind == unstable.Array {
		elements = nil
		for it := value.Children(); it.Next(); {
			elements = append(elements, it.Node())
		}
	}
	texts = []string{}
	for _, e := range elements {
		if !accepts(kind, e.Kind) {
			return nil, fmt.Sprintf("must be %s, not %s%s", expected(kind), called(e.Kind), quotesHint(kind, e.Kind))
		}
		text := string(e.Data)
		var err error
		if kind == Duration {
			_, err = ParseDuration(text)
		} else if e.Kind == unstable.Integer {
			_, err = ParseInt(text, math.MinInt, math.MaxInt)
		}
		if err != nil {
			return nil, err.Error()
		}
		texts = append(texts, text)
	}
	return texts, ""
}

func accepts(kind Kind, toml unstable.Kind) bool {
	switch toml {
	case unstable.String:
		return kind != Int && kind != Bool
	case unstable.Integer:
		return kind != String && kind != Bool
	case unstable.Float:
		return kind == Duration
	case unstable.Bool:
		return kind == Bool
	}
	return false
}

func expected(kind Kind) string {
	switch kind {
	case String:
		return "a string"
	case Word:
		return "a string or an integer"
	case Int:
		return "an integer"
	case Bool:
		return "true or false"
	case Duration:
		return "seconds or a string such as \"1m30s\""
	default:
		return "an array of strings or integers"
	}
}

func called(toml unstable.Kind) string {
	switch toml {
	case unstable.String:
		return "a string"
	case unstable.Integer:
		return "an integer"
	case unstable.Float:
		return "a float"
	case unstable.Bool:
		return "a boolean"
	case unstable.Array:
		return "an array"
	case unstable.InlineTable:
		return "a table"
	default:
		return "a date or time"
	}
}

func quotesHint(kind Kind, toml unstable.Kind) string {
	switch {
	case toml == unstable.String:
		return ": write it without quotes"
	case kind == Duration || toml == unstable.Array || toml == unstable.InlineTable:
		return ""
	case accepts(kind, unstable.String):
		return ": write it in quotes"
	}
	return ""
}

// display writes a key in TOML's own form, with quotes only where it needs
// them. Different keys stay different.
func display(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		if p == "" || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			parts[i] = strconv.Quote(p)
		}
	}
	return strings.Join(parts, ".")
}

// nearest returns the candidate that differs from a misspelt word in the fewest
// letters; "" if none has less than three of them, or than half the word.
func nearest(word string, candidates []string) string {
	best, least := "", min(3, (len(word)+1)/2)
	if len(word) > 64 {
		return "" // longer than any candidate
	}
	for _, c := range candidates {
		if d := distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with
// their neighbour to turn one word into the other.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}
