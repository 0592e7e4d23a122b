package config_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golock/config"
	"golock/test/testkit"
)

const stranger = 65534

// A file that the host cannot read now, for want of descriptors or because of a broken disk, is not a
// wrong one. Reading at the beginning of /proc/self/mem is EIO.
func TestHostFailed(t *testing.T) {
	broken := "/proc/self/mem"
	_, err := config.Files{Passwd: broken}.Paths()
	if wrong, ok := errors.AsType[*config.Error](err); !ok || !wrong.HostFailed() {
		t.Errorf("password database: %v", err)
	}
	_, err = config.Files{Passwd: t.TempDir()}.Paths()
	if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.HostFailed() {
		t.Errorf("a directory: %v", err)
	}
}

// (Which files those of this host are: testdata/config.txtar.)
func TestHome(t *testing.T) {
	passwd := write(t, filepath.Join(t.TempDir(), "passwd"), strings.Join([]string{
		"root:x:0:0:root:/root:/bin/sh",
		"# a comment: with: many: colons: 7: in: it",
		"+::::::",
		"",
		"short:x:7",
		"anna:x:1000:1000:Anna,,,:/home/anna:/bin/sh",
		"also-anna:x:1000:1000::/home/other:/bin/sh",
		"homeless:x:1001:1001:::",
		"relative:x:1002:1002::home:/bin/sh",
		"long:x:1003:1003:" + strings.Repeat("x", 30000) + ":/home/long:/bin/sh",
		"last:x:1004:1004::/home/last:/bin/sh",
	}, "\n"))
	for uid, want := range map[int]string{
		0: "/root/c ", 1000: "/home/anna/c ", 1003: "/home/long/c ", 1004: "/home/last/c ", 1001: "", 1002: "", 7: "", 4711: "",
	} {
		paths, err := config.Files{System: "s", User: "c", Passwd: passwd, UID: uid}.Paths()
		if got := strings.Join(paths, " "); err != nil || got != want+"s" {
			t.Errorf("user %d: %q, %v, want %q", uid, got, err, want)
		}
	}
	for _, missing := range []string{"", passwd + ".missing", passwd + "/below"} {
		if paths, err := (config.Files{System: "s", User: "c", Passwd: missing}).Paths(); err != nil || len(paths) != 1 {
			t.Errorf("database %q: %q, %v", missing, paths, err)
		}
	}
}

func TestUnreadablePasswordDatabase(t *testing.T) {
	h := newHost(t)
	h.files.Passwd = t.TempDir()
	_, err := h.resolve(nil, nil)
	wantError(t, err, h.files.Passwd+": cannot look up the home directory of user 0: the file cannot be read: is a directory", false)

	// With a file of its own choice the run does not need the database.
	own := write(t, filepath.Join(t.TempDir(), "own.toml"), "")
	h.mustResolve(flags{"config": {own}}, nil)
}

// symlink, chmod and so on make the file that a case is about.
func symlink(target string) func(testing.TB, string) {
	return func(t testing.TB, path string) { testkit.Must(t, os.Symlink(target, path)) }
}

func file(mode os.FileMode, uid int, text string) func(testing.TB, string) {
	return func(t testing.TB, path string) {
		write(t, path, text)
		testkit.Must(t, os.Chmod(path, mode))
		testkit.Must(t, os.Chown(path, uid, uid))
	}
}

// Each case is tried as the user's file, the system's file, the file of a flag
// and that of a variable: the same words for all.
func TestRefusedFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(testing.TB, string)
		uid  int
		want string // PATH stands for the file; "" if it is accepted
	}{
		{name: "plain", make: file(0o644, 0, "")},
		{name: "private", make: file(0o600, 0, "")},
		{name: "own", make: file(0o600, stranger, ""), uid: stranger},
		{name: "root's, for a user", make: file(0o644, 0, ""), uid: stranger},
		{name: "symbolic link to a good file", make: func(t testing.TB, path string) {
			file(0o644, 0, "")(t, path+".target")
			symlink(path+".target")(t, path)
		}},
		{name: "as large as allowed", make: file(0o644, 0, strings.Repeat("#234567\n", 1<<17))},
		{
			name: "too large", make: file(0o644, 0, strings.Repeat("#234567\n", 1<<17)+"\n"),
			want: "PATH: is larger than 1 MiB, which no configuration is",
		},
		{
			name: "somebody else's", make: file(0o600, stranger, ""),
			want: "PATH: belongs to user 65534, who could write anything into it: chown 0 PATH",
		},
		{
			name: "somebody else's, for a user", make: file(0o644, 1000, ""), uid: stranger,
			want: "PATH: belongs to user 1000, who could write anything into it: chown 65534 PATH",
		},
		{
			name: "group can write", make: file(0o664, 0, ""),
			want: "PATH: other users can write to it (mode 0664): chmod go-w PATH",
		},
		{
			name: "all can write", make: file(0o666, 0, ""),
			want: "PATH: other users can write to it (mode 0666): chmod go-w PATH",
		},
		{
			name: "only others can write", make: file(0o602, stranger, ""), uid: stranger,
			want: "PATH: other users can write to it (mode 0602): chmod go-w PATH",
		},
		{
			name: "behind a symbolic link", want: "PATH: other users can write to it (mode 0666): chmod go-w PATH",
			make: func(t testing.TB, path string) {
				file(0o666, 0, "")(t, path+".target")
				symlink(path+".target")(t, path)
			},
		},
		{
			name: "directory", make: func(t testing.TB, path string) { testkit.Must(t, os.Mkdir(path, 0o755)) },
			want: "PATH: is a directory, not a file",
		},
		{
			name: "FIFO", make: func(t testing.TB, path string) { testkit.Must(t, syscall.Mkfifo(path, 0o600)) },
			want: "PATH: is not a regular file",
		},
		{
			name: "socket", want: "PATH: the file cannot be opened: no such device or address",
			make: func(t testing.TB, path string) {
				testkit.Must(t, os.Mkdir(path+".d", 0o755))
				t.Chdir(path + ".d") // a socket's path must be short
				l, err := net.Listen("unix", "s")
				testkit.Must(t, err)
				t.Cleanup(func() { l.Close() })
				testkit.Must(t, os.Symlink(path+".d/s", path))
			},
		},
		{name: "device", make: symlink("/dev/zero"), want: "PATH: is not a regular file"},
		{
			name: "symbolic link to itself", make: func(t testing.TB, path string) { symlink(path)(t, path) },
			want: "PATH: the file cannot be opened: too many levels of symbolic links",
		},
		{
			name: "fails while it is read", make: symlink("/proc/self/mem"),
			want: "PATH: the file cannot be read: input/output error",
		},
	} {
		for _, way := range []string{"user", "system", "flag", "variable"} {
			t.Run(c.name+" by "+way, func(t *testing.T) {
				h := newHost(t)
				h.files.UID = c.uid
				if c.uid != 0 {
					write(t, h.files.Passwd, "anna:x:65534:65534::"+strings.TrimSuffix(h.user, "/"+h.files.User)+":/bin/sh\n")
				}
				path, f, e := h.user, flags{}, env{}
				switch way {
				case "system":
					path = h.system
				case "flag":
					path = h.system + ".own"
					f["config"] = []string{path}
				case "variable":
					path = h.system + ".own"
					e["GOLOCK_CONFIG"] = path
				}
				testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				c.make(t, path)
				_, err := h.resolve(f, e)
				if c.want != "" {
					wantError(t, err, strings.ReplaceAll(c.want, "PATH", path), false)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A home that may not be looked into has no file; one in it that is there and
// unreadable is an error.
func TestHiddenFile(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(filepath.Dir(dir), 0o755))
	files := config.Files{User: "golock.toml", Passwd: filepath.Join(dir, "passwd"), UID: stranger}
	write(t, files.Passwd, fmt.Sprintf("s:x:%d:0::%s/home:/bin/sh\n", stranger, dir))
	user := write(t, filepath.Join(dir, "home/golock.toml"), "this is wrong")
	resolve := func() (v *config.Values, err error) {
		asStranger(t, func() { v, err = host{files: files}.resolve(nil, nil) })
		return v, err
	}
	testkit.Must(t, os.Chmod(filepath.Dir(user), 0o700))
	v, err := resolve()
	if err != nil || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], user) {
		t.Errorf("%v, %v, want one note about %s", v, err, user)
	}
	testkit.Must(t, errors.Join(os.Chmod(filepath.Dir(user), 0o755), os.Chmod(user, 0o600)))
	_, err = resolve()
	wantError(t, err, user+": the file cannot be opened: permission denied", false)
}

// asStranger calls a function as a user who is not root: root reads everything.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, stranger, 0, 0)
		if errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	testkit.Must(t, <-done)
}

func TestMissingFiles(t *testing.T) {
	h := newHost(t)
	h.mustResolve(nil, nil)

	// A file where a directory should be on the way is no more than a missing one.
	write(t, strings.TrimSuffix(h.user, "/golock/config.toml"), "")
	h.mustResolve(nil, nil)

	// A file that was asked for must be there, and the others do not matter.
	write(t, h.system, "this is wrong")
	h.mustResolve(flags{"config": {"/dev/null"}}, nil)
	none := filepath.Join(t.TempDir(), "none.toml")
	_, err := h.resolve(flags{"config": {none}}, nil)
	wantError(t, err, none+": there is no such file, though --config names it", false)
	_, err = h.resolve(nil, env{"GOLOCK_CONFIG": none})
	wantError(t, err, none+": there is no such file, though GOLOCK_CONFIG names it", false)
	_, err = h.resolve(flags{"config": {h.system + "/x"}}, nil)
	wantError(t, err, h.system+"/x: there is no such file, though --config names it", false)
	_, err = h.resolve(flags{"config": {""}}, nil)
	wantError(t, err, "--config: names no file", true)
}

func TestOwnFileReplacesTheDefaults(t *testing.T) {
	h := newHost(t)
	write(t, h.system, "[defaults]\nmax = 1\nstore = 'system'")
	write(t, h.user, "[defaults]\nmax = 2\nstore = 'user'")
	flagged := write(t, filepath.Join(t.TempDir(), "a.toml"), "[defaults]\nmax = 3")
	named := write(t, filepath.Join(t.TempDir(), "b.toml"), "[defaults]\nmax = 4")
	for _, c := range []struct {
		f          flags
		e          env
		max, store string
	}{
		{max: h.user + ":2: max", store: h.user + ":3: store"},
		{e: env{"GOLOCK_CONFIG": ""}, max: h.user + ":2: max", store: h.user + ":3: store"},
		{e: env{"GOLOCK_CONFIG": named}, max: named + ":2: max"},
		{f: flags{"config": {flagged}}, e: env{"GOLOCK_CONFIG": named}, max: flagged + ":2: max"},
		{f: flags{"config": {named, flagged}}, max: flagged + ":2: max"},
	} {
		v := h.mustResolve(c.f, c.e)
		if source(v, "max") != c.max || source(v, "store") != c.store {
			t.Errorf("%v %v: max from %q, store from %q", c.f, c.e, source(v, "max"), source(v, "store"))
		}
	}
	t.Chdir(filepath.Dir(flagged))
	if got := source(h.mustResolve(flags{"config": {"a.toml"}}, nil), "max"); got != "a.toml:2: max" {
		t.Errorf("a relative path: %q", got)
	}
}
