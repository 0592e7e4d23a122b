package config

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/pelletier/go-toml/v2/unstable"
)

// file is one file's content.
type file struct {
	path     string
	defaults table
	locks    map[string]table
}

// table is [defaults] or one [lock."NAME"], by key. A nil table is empty.
type table map[string]entry

type entry struct {
	texts []string
	line  int
}

func (t table) layer(path string) func(Setting) (given, bool) {
	return func(s Setting) (given, bool) {
		e, ok := t[s.Key]
		return given{texts: e.texts, source: Source{Key: s.Key, File: path, Line: e.line}}, ok
	}
}

// parse reads a file. Every error names a line.
//
// It walks the syntax tree of go-toml rather than decoding into Go values. The
// tree has the position of every key, which values need for as long as they
// live, not only while decoding fails; and the package of the tree costs no
// start-up time, where the decoder brings reflection and encoding/json along.
// The price is that the rule against defining something twice is checked here:
// see define.
func parse(path string, data []byte, settings []Setting) (file, error) {
	r := reader{
		settings: settings,
		file:     file{path: path, defaults: table{}, locks: map[string]table{}},
		data:     data,
		owners:   map[string]owner{},
		line:     1,
	}
	r.parser.Reset(data)
	at := scope{}
	for r.parser.NextExpression() {
		var err error
		if e := r.parser.Expression(); e.Kind == unstable.KeyValue {
			err = r.keyValue(at, e)
		} else {
			at, err = r.header(e)
		}
		if err != nil {
			return file{}, err
		}
	}
	if err := r.parser.Error(); err != nil {
		return file{}, r.syntaxError(err)
	}
	return r.file, nil
}

type reader struct {
	parser   unstable.Parser
	settings []Setting
	file     file
	data     []byte
	owners   map[string]owner // who defined a table, by its display name
	scopes   int

	offset, line int // what lineOf found last
}

// scope is a place where keys can stand: the top of the file, what follows a
// header, or an inline table. The path is that of the table around it.
type scope struct {
	id   int
	path []string
}

// owner is the scope that defined a table. Nothing can be added to a table that
// is closed, which inline tables are.
type owner struct {
	scope, line int
	closed      bool
}

func (r *reader) newScope(path []string) scope {
	r.scopes++
	return scope{r.scopes, path}
}

// header enters the table that a line in brackets names.
func (r *reader) header(e *unstable.Node) (scope, error) {
	path, line := r.path(nil, e.Key())
	name := display(path)
	if e.Kind == unstable.ArrayTable {
		return scope{}, r.errorf(line, "[[%s]] is an array of tables: write it in single brackets", name)
	}
	if !isTable(path) {
		return scope{}, r.errorf(line, "%s", unknownTable(path))
	}
	if outer := r.owners["lock"]; len(path) > 1 && outer.closed {
		return scope{}, r.errorf(line, "the table [%s] cannot be added to [%s], which line %d has closed", name, path[0], outer.line)
	}
	inside := r.newScope(path)
	return inside, r.define(path, owner{inside.id, line, false})
}

// keyValue takes in one setting, or all those of an inline table.
func (r *reader) keyValue(at scope, e *unstable.Node) error {
	path, line := r.path(at.path, e.Key())
	for i := len(at.path) + 1; i < len(path) && isTable(path[:i]); i++ {
		if old, ok := r.owners[display(path[:i])]; ok && old.scope == at.id {
			continue // dotted keys that stand together define a table together
		}
		if err := r.define(path[:i], owner{at.id, line, false}); err != nil {
			return err
		}
	}
	value := e.Value()
	if value.Kind == unstable.InlineTable && isTable(path) {
		inside := r.newScope(path)
		if err := r.define(path, owner{inside.id, line, true}); err != nil {
			return err
		}
		for it := value.Children(); it.Next(); {
			if err := r.keyValue(inside, it.Node()); err != nil {
				return err
			}
		}
		return nil
	}
	return r.setting(path, line, value)
}

// define notes who defined a table; nobody may have done so before
// (https://toml.io/en/v1.0.0#table). It is not called for the [lock] that every
// [lock."NAME"] implies.
func (r *reader) define(path []string, by owner) error {
	name := display(path)
	if old, ok := r.owners[name]; ok {
		return r.errorf(by.line, "the table [%s] is defined a second time, first in line %d", name, old.line)
	}
	r.owners[name] = by
	return nil
}

// setting stores one value.
func (r *reader) setting(path []string, line int, value *unstable.Node) error {
	if !isTable(path[:len(path)-1]) || len(path) == 2 && path[0] == "lock" {
		return r.errorf(line, "%s", misplaced(path, r.settings))
	}
	key := path[len(path)-1]
	s, problem := lookUp(key, r.settings)
	if problem != "" {
		return r.errorf(line, "%s", problem)
	}
	into := r.file.defaults
	if path[0] == "lock" {
		if into = r.file.locks[path[1]]; into == nil {
			into = table{}
			r.file.locks[path[1]] = into
		}
	}
	source := Source{Key: key, File: r.file.path, Line: line}
	if old, ok := into[key]; ok {
		return &Error{source, fmt.Sprintf("is set a second time, first in line %d", old.line)}
	}
	texts, problem := textsOf(s.Kind, value)
	if problem != "" {
		return &Error{source, problem}
	}
	into[key] = entry{texts, line}
	return nil
}

// path appends the parts of a key, which always stand on one line.
func (r *reader) path(outer []string, key unstable.Iterator) (path []string, line int) {
	path = append(path, outer...)
	for key.Next() {
		line = r.lineOf(int(key.Node().Raw.Offset))
		path = append(path, string(key.Node().Data))
	}
	return path, line
}

// lineOf counts on from where it stopped last: the keys come in order, and a
// file can have a hundred thousand.
func (r *reader) lineOf(offset int) int {
	r.line += bytes.Count(r.data[r.offset:offset], []byte{'\n'})
	r.offset = offset
	return r.line
}

func (r *reader) errorf(line int, format string, args ...any) error {
	return &Error{Source{File: r.file.path, Line: line}, fmt.Sprintf(format, args...)}
}

func (r *reader) syntaxError(err error) error {
	offset := r.offset
	var at *unstable.ParserError
	if errors.As(err, &at) {
		// The highlight is a part of the data, so that the capacities tell its
		// place; at the end of a file it may be empty.
		offset = max(0, min(cap(r.data)-cap(at.Highlight), len(r.data)-1))
	}
	line := 1 + bytes.Count(r.data[:offset], []byte{'\n'})
	return r.errorf(line, "this is not TOML: %v", err)
}
