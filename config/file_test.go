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
	"golock/internal/passwd"
	"golock/test/testkit"
)

const stranger = 65534

// A file that the host cannot read now, for want of descriptors or because of a broken disk, is not a
// wrong one. Reading at the beginning of /proc/self/mem is EIO.
func TestHostFailed(t *testing.T) {
	h := newHost(t)
	h.files.Users.Passwd = "/proc/self/mem" // reading gives EIO
	_, err := h.resolve(nil, nil)
	if wrong, ok := errors.AsType[*config.Error](err); !ok || !wrong.HostFailed() {
		t.Errorf("password database: %v", err)
	}
	h = newHost(t)
	symlink("/proc/self/mem")(t, h.system)
	_, err = h.resolve(nil, nil)
	if wrong, ok := errors.AsType[*config.Error](err); !ok || !wrong.HostFailed() {
		t.Errorf("configuration file: %v", err)
	}
}

// (Which files those of this host are: testdata/config.txtar.)
func TestHome(t *testing.T) {
	database := write(t, filepath.Join(t.TempDir(), "passwd"), strings.Join([]string{
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
		0: "/root/c", 1000: "/home/anna/c", 1003: "/home/long/c", 1004: "/home/last/c", 1001: "", 1002: "", 7: "", 4711: "",
	} {
		got, err := config.Files{User: "c", Users: passwd.Databases{Passwd: database}, Home: uid}.UserFile()
		if err != nil || got != want {
			t.Errorf("user %d: %q, %v, expected %q", uid, got, err, want)
		}
	}
	for _, missing := range []string{"", database + ".missing", database + "/below"} {
		if path, err := (config.Files{User: "c", Users: passwd.Databases{Passwd: missing}}).UserFile(); err != nil || path != "" {
			t.Errorf("database %q: %q, %v", missing, path, err)
		}
	}
}

// A user that /etc/passwd does not have is looked up by getent, which knows LDAP and others. That it fails is
// said: the user's file may name another store.
func TestHomeByGetent(t *testing.T) {
	dir := t.TempDir()
	getent := func(script string) []string {
		path := write(t, filepath.Join(dir, "getent"), "#!/bin/sh\n"+script)
		testkit.Must(t, os.Chmod(path, 0o755))
		return []string{filepath.Join(dir, "none"), path}
	}
	for _, c := range []struct{ script, path, failure string }{
		{script: `test "$*" = "passwd 4711" && echo "eva:x:4711:4711::/home/eva:/bin/sh"`, path: "/home/eva/c"},
		{script: `echo "eva:x:4712:4711::/home/eva:/bin/sh"`}, // of somebody else
		{script: "exit 2"}, // not found
		{
			script: "echo 'cannot reach the directory' >&2; exit 1",
			failure: "the home directory of user 4711 cannot be looked up; its configuration file is not read: " +
				"getent passwd 4711: exit status 1: cannot reach the directory",
		},
	} {
		files := config.Files{User: "c", Users: passwd.Databases{Getent: getent(c.script)}, Home: 4711}
		path, err := files.UserFile()
		if path != c.path || (err != nil || c.failure != "") && fmt.Sprint(err) != c.failure {
			t.Errorf("%s: %q, %v", c.script, path, err)
		}
		v, err := host{files: files}.resolve(nil, nil)
		if err != nil || (c.failure != "") != (len(v.Warnings) == 1 && v.Warnings[0] == c.failure) {
			t.Errorf("%s: warnings %q, %v", c.script, v.Warnings, err)
		}
		isUnknown := c.path == "" && c.failure == ""
		if isNoted := len(v.Notes) == 1 && strings.Contains(v.Notes[0], "has no home directory of user 4711"); isNoted != isUnknown {
			t.Errorf("%s: notes %q", c.script, v.Notes)
		}
	}
}

func TestUnreadablePasswordDatabase(t *testing.T) {
	h := newHost(t)
	h.files.Users.Passwd = t.TempDir()
	v, err := h.resolve(nil, nil)
	if err != nil || len(v.Warnings) != 1 || !strings.HasSuffix(v.Warnings[0], "read "+h.files.Users.Passwd+": is a directory") {
		t.Errorf("%v, %v: expected a warning", v, err)
	}

	// With a file of its own choice the run does not need the database.
	own := write(t, filepath.Join(t.TempDir(), "own.toml"), "")
	if v := h.mustResolve(flags{"config": {own}}, nil); v.Warnings != nil {
		t.Errorf("warnings %q", v.Warnings)
	}
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
				h.files.UID, h.files.Home = c.uid, c.uid
				if c.uid != 0 {
					write(t, h.files.Users.Passwd, "anna:x:65534:65534::"+strings.TrimSuffix(h.user, "/"+h.files.User)+":/bin/sh\n")
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

// With a umask of 002 a user's files are writable for a group that has no other member. Such a group is
// accepted, and no other one.
func TestPrivateGroup(t *testing.T) {
	const alice = "alice:x:65534:65534::/home/alice:/bin/sh\n"
	for name, c := range map[string]struct {
		passwd, group string
		list          bool // the file has an access control list, which shows in the group's bits
		isRefused     bool
	}{
		"private":                     {passwd: alice, group: "alice:x:65534:\n"},
		"lists the user":              {passwd: alice, group: "alice:x:65534:alice\n"},
		"lists another user":          {passwd: alice, group: "alice:x:65534:alice,bob\n", isRefused: true},
		"is another's primary group":  {passwd: alice + "bob:x:7:65534::/:\n", group: "alice:x:65534:\n", isRefused: true},
		"has another name":            {passwd: alice, group: "staff:x:65534:\n", isRefused: true},
		"is not the primary group":    {passwd: "alice:x:65534:7::/home/alice:/bin/sh\n", group: "alice:x:65534:\n", isRefused: true},
		"is unknown":                  {passwd: alice, isRefused: true},
		"of a user who is unknown":    {group: "alice:x:65534:\n", isRefused: true},
		"with an access control list": {passwd: alice, group: "alice:x:65534:\n", list: true, isRefused: true},
	} {
		dir := t.TempDir()
		files := config.Files{UID: stranger, Users: passwd.Databases{
			Passwd: write(t, filepath.Join(dir, "passwd"), c.passwd),
			Group:  write(t, filepath.Join(dir, "group"), c.group),
		}}
		path := filepath.Join(dir, "golock.toml")
		file(0o664, stranger, "")(t, path)
		if c.list {
			// setfacl -m u:7:rw, in the form of acl(5): version 2, then tag, rights and ID of each entry.
			list := []byte{2, 0, 0, 0}
			for _, e := range [][2]byte{{0x01, 6}, {0x02, 6}, {0x04, 4}, {0x10, 6}, {0x20, 4}} {
				id := []byte{0xff, 0xff, 0xff, 0xff}
				if e[0] == 0x02 {
					id = []byte{7, 0, 0, 0}
				}
				list = append(list, append([]byte{e[0], 0, e[1], 0}, id...)...)
			}
			testkit.Must(t, syscall.Setxattr(path, "system.posix_acl_access", list, 0))
		}
		_, err := files.Read(path)
		switch {
		case c.isRefused:
			wantPrefix := "other users can write to it (mode 0664)"
			if err == nil || !strings.HasPrefix(err.Error(), wantPrefix) {
				t.Errorf("%s: %v, expected %s", name, err, wantPrefix)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A user's file that may be there but cannot be read is a warning: it may name another store. Below a
// directory that nobody may look into, as ProtectHome= makes it, it is a note.
func TestHiddenFile(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(filepath.Dir(dir), 0o755))
	files := config.Files{User: "golock.toml", Users: passwd.Databases{Passwd: filepath.Join(dir, "passwd")}, UID: stranger, Home: stranger}
	write(t, files.Users.Passwd, fmt.Sprintf("s:x:%d:0::%s/home:/bin/sh\n", stranger, dir))
	user := write(t, filepath.Join(dir, "home/golock.toml"), "this is wrong")
	resolve := func() (v *config.Values, err error) {
		asStranger(t, func() { v, err = host{files: files}.resolve(nil, nil) })
		return v, err
	}
	for _, c := range []struct {
		home, file      os.FileMode
		notes, warnings int
	}{
		{home: 0o000, file: 0o644, notes: 1},
		{home: 0o700, file: 0o644, warnings: 1},
		{home: 0o755, file: 0o600, warnings: 1},
	} {
		testkit.Must(t, errors.Join(os.Chmod(user, c.file), os.Chmod(filepath.Dir(user), c.home)))
		v, err := resolve()
		if err != nil || len(v.Notes) != c.notes || len(v.Warnings) != c.warnings ||
			!strings.HasPrefix(strings.Join(append(v.Notes, v.Warnings...), ""), user+": ") {
			t.Errorf("home %v, file %v: %+v, %v", c.home, c.file, v, err)
		}
		testkit.Must(t, os.Chmod(filepath.Dir(user), 0o755))
	}
}

// A symbolic link that leads nowhere is not a missing file: what it should lead to may name another store.
func TestLinkWithoutTarget(t *testing.T) {
	h := newHost(t)
	home := strings.TrimSuffix(h.user, "/"+h.files.User)
	testkit.Must(t, os.MkdirAll(home, 0o755))
	for _, link := range []string{h.user, filepath.Dir(h.user), filepath.Join(home, ".config")} {
		testkit.Must(t, os.MkdirAll(filepath.Dir(link), 0o755))
		symlink("none")(t, link)
		v, err := h.resolve(nil, nil)
		want := h.user + ": the symbolic link " + link + " leads nowhere: "
		if err != nil || len(v.Warnings) != 1 || !strings.HasPrefix(v.Warnings[0], want) {
			t.Errorf("%s: %+v, %v: expected a warning", link, v, err)
		}
		testkit.Must(t, errors.Join(os.Remove(link), os.RemoveAll(filepath.Join(home, ".config"))))
	}
	// A link to a directory without golock's file leads somewhere.
	symlink(t.TempDir())(t, filepath.Join(home, ".config"))
	h.mustResolve(nil, nil)
	if v, err := h.resolve(nil, nil); err != nil || len(v.Warnings) > 0 {
		t.Errorf("behind a link: %v, %v: expected no warning", v.Warnings, err)
	}
	etc := filepath.Dir(h.system)
	testkit.Must(t, os.RemoveAll(etc))
	symlink(t.TempDir())(t, etc)
	h.mustResolve(nil, nil)
	symlink("none")(t, h.system)
	_, err := h.resolve(nil, nil)
	wantError(t, err, h.system+": the symbolic link "+h.system+" leads nowhere: no such file or directory", false)
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
