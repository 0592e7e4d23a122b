package execvp

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"golock/test/testkit"
)

// Find finds what execvp(3) would execute, and fails with the same error.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, nil, mode))
		testkit.Must(t, os.Chmod(path, mode))
	}
	write("a/tool", 0o644)
	write("b/tool", 0o755)
	write("a/locked", 0o644)
	write("here", 0o755)
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "a", "folder"), 0o755))
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
		{":/nonexistent", "here", "./here", nil},
		{"/nonexistent::/nonexistent", "here", "./here", nil},
		{"/nonexistent", "here", "", unix.ENOENT},
		{"here:b", "tool", "b/tool", nil},
		{dir + "/b", "b/tool", "b/tool", nil},
		{dir + "/b", "", "", unix.ENOENT},
	} {
		t.Setenv("PATH", tt.path)
		got, err := Find(tt.name)
		if got != tt.want || err != tt.err {
			t.Errorf("PATH=%q: Find(%q) = %q, %v; want %q, %v", tt.path, tt.name, got, err, tt.want, tt.err)
		}
	}
	os.Unsetenv("PATH")
	if got, err := Find("sh"); err != nil || got != "/bin/sh" {
		t.Errorf("without PATH: Find(sh) = %q, %v", got, err)
	}
	if got, err := Find("here"); err != unix.ENOENT {
		t.Errorf("without PATH: Find(here) = %q, %v", got, err)
	}
}
