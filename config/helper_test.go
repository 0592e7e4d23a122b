package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golock/config"
	"golock/internal/passwd"
	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetDefaults()
	os.Exit(m.Run())
}

// settings has one row of every kind, a group of three, and the two keys that
// the package knows.
var settings = []config.Setting{
	{Key: "name", Env: "GOLOCK_NAME", Kind: config.String, NotInFile: true},
	{Key: "config", Env: "GOLOCK_CONFIG", Kind: config.String, NotInFile: true},
	{Key: "exec", Kind: config.Bool, NotInFile: true},
	{Key: "store", Env: "GOLOCK_STORE", Kind: config.String, Default: "local", EmptyIsSet: true},
	{Key: "max", Env: "GOLOCK_MAX", Kind: config.Int, Default: "1", Group: "max"},
	{Key: "shared", Kind: config.Bool, Group: "max"},
	{Key: "exclusive", Kind: config.Bool, Group: "max"},
	{Key: "wait", Env: "GOLOCK_WAIT", Kind: config.Duration, Group: "wait"},
	{Key: "no-wait", Kind: config.Bool, Group: "wait"},
	{Key: "kill-after", Env: "GOLOCK_KILL_AFTER", Kind: config.Duration, Default: "10s"},
	{Key: "signal", Kind: config.Word},
	{Key: "ok-exit", Env: "GOLOCK_OK_EXIT", Kind: config.List},
	{Key: "tree", Env: "GOLOCK_TREE", Kind: config.Bool},
}

// host is a machine whose user 0 has a home directory and no files yet.
type host struct {
	t            testing.TB
	files        config.Files
	system, user string
}

func newHost(t testing.TB) host {
	t.Helper()
	dir := t.TempDir()
	h := host{
		t: t,
		files: config.Files{
			System: filepath.Join(dir, "golock.toml"),
			User:   ".config/golock/config.toml",
			Users:  passwd.Databases{Passwd: filepath.Join(dir, "passwd"), Group: filepath.Join(dir, "group")},
		},
		system: filepath.Join(dir, "golock.toml"),
		user:   filepath.Join(dir, "home/.config/golock/config.toml"),
	}
	write(t, h.files.Users.Passwd, fmt.Sprintf("root:x:0:0:root:%s/home:/bin/sh\n", dir))
	return h
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

type (
	flags = map[string][]string
	env   = map[string]string
)

// resolve asks with those flags, name=value variables and the host's files.
func (h host) resolve(f flags, e env) (*config.Values, error) {
	return h.resolveOf(settings, f, e)
}

func (h host) resolveOf(all []config.Setting, f flags, e env) (*config.Values, error) {
	lookup := func(name string) (string, bool) { text, ok := e[name]; return text, ok }
	return config.Resolve(all, config.Layers{Flags: f, Lookup: lookup, Files: h.files})
}

func (h host) mustResolve(f flags, e env) *config.Values {
	h.t.Helper()
	v, err := h.resolve(f, e)
	testkit.Must(h.t, err)
	return v
}

// source returns who gave a setting, "" if nobody did.
func source(v *config.Values, key string) string {
	if s, ok := v.Given(key); ok {
		return s.String()
	}
	return ""
}

// wantError checks the text of an error and on whose account it goes.
func wantError(t testing.TB, err error, text string, fromFlag bool) {
	t.Helper()
	var e *config.Error
	switch {
	case err == nil:
		t.Errorf("no error, want %q", text)
	case !errors.As(err, &e):
		t.Errorf("error of type %T, want *config.Error: %v", err, err)
	case err.Error() != text:
		t.Errorf("error:\n  %s\nwant:\n  %s", err, text)
	case e.Source.FromFlag() != fromFlag:
		t.Errorf("%v: FromFlag is %v", err, e.Source.FromFlag())
	}
}
