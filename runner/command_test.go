package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// find follows execvp(3).
func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("a/tool", 0o644)
	write("b/tool", 0o755)
	write("a/locked", 0o644)
	write("here", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "a", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, tt := range []struct {
		path, name, want string
		err              error
	}{
		{dir + "/a:" + dir + "/b", "tool", dir + "/b/tool", nil},
		{dir + "/a", "locked", "", unix.EACCES},
		{dir + "/a", "folder", "", unix.EACCES},
		{dir + "/a", "nothing", "", unix.ENOENT},
		{"", "here", "./here", nil},
		{"/nonexistent:", "here", "./here", nil},
		{dir + "/b", "b/tool", "b/tool", nil},
		{dir + "/b", "", "", unix.ENOENT},
	} {
		t.Setenv("PATH", tt.path)
		got, err := find(tt.name)
		if got != tt.want || err != tt.err {
			t.Errorf("PATH=%q: find(%q) = %q, %v; want %q, %v", tt.path, tt.name, got, err, tt.want, tt.err)
		}
	}
	os.Unsetenv("PATH")
	if got, err := find("sh"); err != nil || got != "/bin/sh" {
		t.Errorf("without PATH: find(sh) = %q, %v", got, err)
	}
}

func TestEnvironment(t *testing.T) {
	outer, _ := locks.NewRef("outer")
	ref, _ := locks.NewRef("n")
	c := prepare([]string{"true"}, []string{
		"A=1", "GOLOCK_STORE=mine", "GOLOCK_ID=old", "GOLOCK_SLOT=9", "GOLOCK_SLOTS=9", "GOLOCK_FENCE=9", "GOLOCK_LOCK_NAME=old", "GOLOCK_LOCK_STORE=old",
		"GOLOCK_HELD=" + outer.String(), "A=2", "NOVALUE",
	}, locks.Request{Ref: ref, Name: "n"}, "local")
	c.grant(locks.Grant{Ref: ref, Slots: []int{2, 3}, Fence: 7})
	want := []string{
		"A=1", "A=2", "GOLOCK_FENCE=7", "GOLOCK_HELD=" + outer.String() + "," + ref.String(), "GOLOCK_ID=" + ref.String(),
		"GOLOCK_LOCK_NAME=n", "GOLOCK_LOCK_STORE=local", "GOLOCK_SLOT=2", "GOLOCK_SLOTS=2,3", "GOLOCK_STORE=mine", "NOVALUE",
	}
	slices.Sort(c.env)
	if !slices.Equal(c.env, want) {
		t.Errorf("environment:\n%s\nwant:\n%s", strings.Join(c.env, "\n"), strings.Join(want, "\n"))
	}
	if got := Enclosing(outer.String() + ",junk," + ref.String()); !slices.Equal(got, []locks.Ref{outer, ref}) {
		t.Errorf("Enclosing = %v", got)
	}
}
