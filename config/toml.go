package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"golock/internal/spelling"
)

// file is the content of one file.
type file struct {
	path     string
	data     []byte
	defaults table
	locks    map[string]table
}

// table is [defaults] or one [lock."NAME"], by key.
type table map[string]value

// maxDots bounds the dots in a line: the decoder takes memory by the square of a key's parts.
const maxDots = 1000

// parse reads a file. Every error names a line.
func parse(path string, data []byte, settings []Setting) (*file, error) {
	f := &file{path: path, data: data, locks: map[string]table{}}
	row, empty := 0, true
	for line := range bytes.Lines(data) {
		if row++; bytes.Count(line, []byte(".")) > maxDots {
			return nil, f.errorAt(row, fmt.Sprintf("has more than %d dots", maxDots))
		}
		text := bytes.TrimSpace(line)
		empty = empty && (len(text) == 0 || text[0] == '#')
	}
	if empty && utf8.Valid(data) { // as packages install it: no start pays for the decoder
		return f, nil
	}
	var content map[string]any
	if err := toml.Unmarshal(data, &content); err != nil {
		return nil, f.errorAt(rowOf(err), "this is not TOML: "+strings.TrimPrefix(err.Error(), "toml: "))
	}
	var err error
	for _, name := range slices.Sorted(maps.Keys(content)) {
		tables, isTable := content[name].(map[string]any)
		switch {
		case name == "defaults":
			f.defaults, err = f.table([]string{name}, content[name], settings)
		case name != "lock":
			key, row := f.find([]string{name})
			err = f.errorAt(row, misplaced(key, settings))
		case !isTable:
			err = f.notTable([]string{name})
		default:
			for _, lock := range slices.Sorted(maps.Keys(tables)) {
				if err == nil {
					f.locks[lock], err = f.table([]string{name, lock}, tables[lock], settings)
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// table reads the settings of one table.
func (f *file) table(path []string, content any, settings []Setting) (table, error) {
	all, ok := content.(map[string]any)
	if !ok {
		return nil, f.notTable(path)
	}
	t := table{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		path := append(slices.Clone(path), key)
		source := Source{Key: key, File: f.path, line: func() int {
			_, row := f.find(path)
			return row
		}}
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
		_, isTable := all[key].(map[string]any)
		switch {
		case i < 0 && isTable && path[0] == "lock":
			return nil, f.errorAt(source.line(), fmt.Sprintf("unknown table [%s]: a name with dots needs quotes, [%s]",
				display(path), display([]string{"lock", path[1] + "." + key})))
		case i < 0 || settings[i].NotInFile:
			return nil, f.errorAt(source.line(), unknown(key, settings))
		}
		texts, problem := textsOf(settings[i].Kind, all[key])
		if problem != "" {
			return nil, &Error{Source: source, Problem: problem}
		}
		t[key] = value{texts, source}
	}
	return t, nil
}

func (f *file) errorAt(row int, problem string) error {
	return &Error{Source: Source{File: f.path, line: func() int { return row }}, Problem: problem}
}

func (f *file) notTable(path []string) error {
	_, row := f.find(path)
	return f.errorAt(row, display(path)+` must be a table: settings stand in [defaults] or [lock."NAME"]`)
}

// find gives the whole key that begins with a path, and its line. A strict decoder
// that knows the tables and no setting reports the place of every key. In an inline
// table it leaves out the tables around: then the first key counts whose words are all
// in the path.
func (f *file) find(path []string) (key []string, row int) {
	var tables struct {
		Defaults struct{}            `toml:"defaults"`
		Lock     map[string]struct{} `toml:"lock"`
	}
	var target any = &tables
	if len(path) == 1 {
		target = &struct{}{}
	}
	err := toml.NewDecoder(bytes.NewReader(f.data)).DisallowUnknownFields().Decode(target)
	missing, ok := errors.AsType[*toml.StrictMissingError](err)
	if !ok { // a value in the place of a table
		return path, rowOf(err)
	}
	other := func(word string) bool { return !slices.Contains(path, word) }
	for _, e := range missing.Errors {
		line, _ := e.Position()
		switch found := e.Key(); {
		case len(found) >= len(path) && slices.Equal(found[:len(path)], path):
			return found, line
		case row == 0 && !slices.ContainsFunc(found, other):
			row = line
		}
	}
	return path, row
}

// rowOf is the line of the decoder's error; 0: it has none.
func rowOf(err error) (row int) {
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, _ = decode.Position()
	}
	return row
}

// misplaced says what is wrong with a key outside of [defaults] and [lock."NAME"].
func misplaced(key []string, settings []Setting) string {
	if len(key) == 1 && slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key[0] }) {
		return fmt.Sprintf(`%s stands outside of a table: put it below [defaults] or [lock."NAME"]`, key[0])
	}
	if near := spelling.Nearest(key[0], []string{"defaults", "lock"}); near != "" {
		return fmt.Sprintf("unknown table [%s], did you mean [%s]?", display(key), display(append([]string{near}, key[1:]...)))
	}
	return fmt.Sprintf(`unknown table [%s]: there are [defaults] and [lock."NAME"]`, display(key))
}

// unknown says what is wrong with a key that no file can have.
func unknown(key string, settings []Setting) string {
	var known []string
	for _, s := range settings {
		switch {
		case !s.NotInFile:
			known = append(known, s.Key)
		case s.Key == key && s.Env != "":
			return fmt.Sprintf("%s cannot stand in a file: use --%s or %s", key, key, s.Env)
		case s.Key == key:
			return fmt.Sprintf("%s cannot stand in a file: use --%s", key, key)
		}
	}
	if near := spelling.Nearest(key, known); near != "" {
		return fmt.Sprintf("unknown setting %q, did you mean %s?", key, near)
	}
	return fmt.Sprintf("unknown setting %q: settings are named as the flags are, without the dashes", key)
}

// textsOf gives a value as a flag would have it, or says what is wrong with it.
func textsOf(kind Kind, content any) (texts []string, problem string) {
	elements := []any{content}
	if list, ok := content.([]any); ok && kind == List {
		elements = list
	}
	texts = []string{}
	for _, e := range elements {
		text, ok := "", false
		switch e := e.(type) {
		case string:
			text, ok = e, kind != Int && kind != Bool
		case int64:
			text, ok = strconv.FormatInt(e, 10), kind != String && kind != Bool
		case float64:
			text, ok = strconv.FormatFloat(e, 'f', -1, 64), kind == Duration
		case bool:
			text, ok = strconv.FormatBool(e), kind == Bool
		}
		if !ok { // without the value: it may be a store with a password
			return nil, "must be " + string(kind)
		}
		if kind == Duration {
			if _, err := ParseDuration(text); err != nil {
				return nil, err.Error()
			}
		}
		texts = append(texts, text)
	}
	return texts, ""
}

// display writes a key as TOML does, with quotes only where it needs them.
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
