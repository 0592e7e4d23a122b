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

// file is a parsed configuration file.
type file struct {
	path     string
	data     []byte
	defaults table
	locks    map[string]table
}

// table has the values of [defaults] or of one [lock."NAME"], by key.
type table map[string]value

// maxDots limits the dots in a line, because the memory that the decoder needs grows with the square
// of the number of parts of a key.
const maxDots = 1000

// parse reads a file. Every error names a line.
func parse(path string, data []byte, settings []Setting) (*file, error) {
	f := &file{path: path, data: data, locks: map[string]table{}}
	lineNumber, isEmpty := 0, true
	for line := range bytes.Lines(data) {
		lineNumber++
		if bytes.Count(line, []byte(".")) > maxDots {
			return nil, f.errorAt(lineNumber, fmt.Sprintf("has more than %d dots", maxDots))
		}
		text := bytes.TrimSpace(line)
		isEmpty = isEmpty && (len(text) == 0 || text[0] == '#')
	}
	if isEmpty && utf8.Valid(data) { // Packages install such a file, and no start should pay for the decoder.
		return f, nil
	}
	var content map[string]any
	if err := toml.Unmarshal(data, &content); err != nil {
		return nil, f.errorAt(lineOf(err), "this is not TOML: "+strings.TrimPrefix(err.Error(), "toml: "))
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		var err error
		switch name {
		case "defaults":
			f.defaults, err = f.table([]string{name}, content[name], settings)
		case "lock":
			err = f.readLocks(content[name], settings)
		default:
			key, lineNumber := f.find([]string{name})
			err = f.errorAt(lineNumber, misplaced(key, settings))
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// readLocks reads all [lock."NAME"] tables.
func (f *file) readLocks(content any, settings []Setting) error {
	tables, isTable := content.(map[string]any)
	if !isTable {
		return f.notTable([]string{"lock"})
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, err := f.table([]string{"lock", name}, tables[name], settings)
		if err != nil {
			return err
		}
		f.locks[name] = t
	}
	return nil
}

// table reads the settings of one table.
func (f *file) table(path []string, content any, settings []Setting) (table, error) {
	all, isTable := content.(map[string]any)
	if !isTable {
		return nil, f.notTable(path)
	}
	t := table{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		path := append(slices.Clone(path), key)
		source := Source{Key: key, File: f.path, line: func() int {
			_, lineNumber := f.find(path)
			return lineNumber
		}}
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
		_, isInnerTable := all[key].(map[string]any)
		switch {
		case i < 0 && isInnerTable && path[0] == "lock":
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

func (f *file) errorAt(lineNumber int, problem string) error {
	return &Error{Source: Source{File: f.path, line: func() int { return lineNumber }}, Problem: problem}
}

func (f *file) notTable(path []string) error {
	_, lineNumber := f.find(path)
	return f.errorAt(lineNumber, display(path)+` must be a table: settings stand in [defaults] or [lock."NAME"]`)
}

// find returns the whole key that begins with a path, and its line. It decodes the file once more,
// strictly, into a type that has the tables but no settings, so that the decoder reports the line of
// every key. For a key of an inline table the decoder leaves out the names of the outer tables. Then
// find takes the first key whose words are all in the path.
func (f *file) find(path []string) (key []string, lineNumber int) {
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
	if !ok { // the file has a value where a table must be
		return path, lineOf(err)
	}
	isOutsidePath := func(word string) bool { return !slices.Contains(path, word) }
	for _, e := range missing.Errors {
		line, _ := e.Position()
		found := e.Key()
		switch {
		case len(found) >= len(path) && slices.Equal(found[:len(path)], path):
			return found, line
		case lineNumber == 0 && !slices.ContainsFunc(found, isOutsidePath):
			lineNumber = line
		}
	}
	return path, lineNumber
}

// lineOf returns the line of an error of the decoder, or 0 if the error has none.
func lineOf(err error) (lineNumber int) {
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		lineNumber, _ = decode.Position()
	}
	return lineNumber
}

// misplaced says what is wrong with a key outside of [defaults] and [lock."NAME"].
func misplaced(key []string, settings []Setting) string {
	if len(key) == 1 && slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key[0] }) {
		return fmt.Sprintf(`%s stands outside of a table: put it below [defaults] or [lock."NAME"]`, key[0])
	}
	if guess := spelling.Nearest(key[0], []string{"defaults", "lock"}); guess != "" {
		return fmt.Sprintf("unknown table [%s], did you mean [%s]?", display(key), display(append([]string{guess}, key[1:]...)))
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
	if guess := spelling.Nearest(key, known); guess != "" {
		return fmt.Sprintf("unknown setting %q, did you mean %s?", key, guess)
	}
	return fmt.Sprintf("unknown setting %q: settings are named as the flags are, without the dashes", key)
}

// textsOf writes a value as the texts of a flag, or says what is wrong with it.
func textsOf(kind Kind, content any) (texts []string, problem string) {
	elements := []any{content}
	if list, ok := content.([]any); ok && kind == List {
		elements = list
	}
	texts = []string{}
	for _, e := range elements {
		text, isOfKind := "", false
		switch e := e.(type) {
		case string:
			text, isOfKind = e, kind != Int && kind != Bool
		case int64:
			text, isOfKind = strconv.FormatInt(e, 10), kind != String && kind != Bool
		case float64:
			text, isOfKind = strconv.FormatFloat(e, 'f', -1, 64), kind == Duration
		case bool:
			text, isOfKind = strconv.FormatBool(e), kind == Bool
		}
		if !isOfKind { // The message leaves out the value, which may be a URL with a password.
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

// display writes a key as TOML does. It puts only those words in quotes that need them.
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
