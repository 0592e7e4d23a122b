package local

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/internal/userns"
	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// somebody is a user who is neither root nor nobody.
const somebody = 4242

// makeRoots builds a set of roots out of lines "PATH MODE [OWNER]", or "PATH ->
// TARGET" for a symbolic link and "PATH file" for a file. run, lock and tmp are
// directories of their own in it.
func makeRoots(t *testing.T, euid int, lines ...string) roots {
	t.Helper()
	testkit.NeedRoot(t)
	base := t.TempDir()
	r := roots{run: base + "/run", lock: base + "/run/lock", tmp: base + "/tmp", euid: euid, user: euid, mountOf: locks.MountOf, isPrivate: isPrivate}
	for _, line := range lines {
		var owner int
		field := strings.Fields(line)
		path := filepath.Join(base, field[0])
		switch {
		case field[1] == "->":
			testkit.Must(t, os.Symlink(filepath.Join(base, field[2]), path))
			continue
		case field[1] == "file":
			testkit.Must(t, os.WriteFile(path, []byte("a file\n"), 0o644))
		default:
			var mode uint32
			_, err := fmt.Sscanf(field[1], "%o", &mode)
			testkit.Must(t, err)
			testkit.Must(t, os.Mkdir(path, 0o700))
			testkit.Must(t, unix.Chmod(path, mode))
		}
		if len(field) > 2 {
			_, err := fmt.Sscan(field[2], &owner)
			testkit.Must(t, err)
			testkit.Must(t, os.Chown(path, owner, owner))
		}
	}
	return r
}

// The default directory depends on what is there, and the first that fits is
// taken, unless the user has one already.
func TestDefaultDirectory(t *testing.T) {
	const all = "run/golock 1777,run/lock 1777,tmp 1777"
	for _, tt := range []struct {
		name  string
		euid  int
		lines string // without "run 755"
		want  string // "" for none
	}{
		{"prepared at boot", somebody, all, "run/golock/4242"},
		{"not prepared", somebody, "run/lock 1777,tmp 1777", "run/lock/golock-4242"},
		{"only tmp", somebody, "tmp 1777", "tmp/golock-4242"},
		{"nothing", somebody, "", ""},
		{"root's own place is not for others", somebody, "run/golock 755,run/lock 1777,tmp 1777", "run/lock/golock-4242"},
		{"not sticky", somebody, "run/golock 777,run/lock 777,tmp 1777", "tmp/golock-4242"},
		{"not open", somebody, "run/golock 1775,run/lock 1755,tmp 1777", "tmp/golock-4242"},
		{"not root's", somebody, "run/golock 1777 7,run/lock 1777 4242,tmp 1777", "tmp/golock-4242"},
		{"symbolic link for a parent", somebody, "other 1777,run/golock -> other,run/lock -> other,tmp 1777", "tmp/golock-4242"},
		{"file for a parent", somebody, "run/golock file,run/lock file,tmp 1777", "tmp/golock-4242"},
		{"nothing that fits", somebody, "run/golock 755,run/lock 755,tmp 777", ""},

		{"own one in tmp", somebody, all + ",tmp/golock-4242 700 4242", "tmp/golock-4242"},
		{"own one in lock", somebody, all + ",run/lock/golock-4242 700 4242,tmp/golock-4242 700 4242", "run/lock/golock-4242"},
		{"own one in run", somebody, all + ",run/golock/4242 700 4242,run/lock/golock-4242 700 4242", "run/golock/4242"},
		{"somebody else's is not own", somebody, all + ",tmp/golock-4242 700 7", "run/golock/4242"},
		{"somebody took the place", somebody, all + ",run/golock/4242 700 7", "run/golock/4242"},
		{"own one in a place that is not safe", somebody, "run/golock 777,run/golock/4242 700 4242,run/lock 1777", "run/lock/golock-4242"},

		{"root prepares its own place", 0, "run/lock 1777,tmp 1777", "run/golock/0"},
		{"root without /run, as on a bare chroot", 0, "tmp 1777", "tmp/golock-0"},
		{"root in the prepared place", 0, all, "run/golock/0"},
		{"root, prepared before", 0, "run/golock 755,run/lock 1777", "run/golock/0"},
		{"root, own one in lock", 0, "run/lock 1777,run/lock/golock-0 700,tmp 1777", "run/lock/golock-0"},
		{"root, the place can be written by a group", 0, "run/golock 775,run/lock 1777", "run/lock/golock-0"},
		{"root, the place is somebody's", 0, "run/golock 755 7,run/lock 1777", "run/lock/golock-0"},
		{"root, the place is a link", 0, "other 755,run/golock -> other,run/lock 1777", "run/lock/golock-0"},
		{"root, the place is a file", 0, "run/golock file,run/lock 1777", "run/lock/golock-0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			if strings.Contains(tt.lines, "run/") {
				lines = append(lines, "run 755")
			}
			if tt.lines != "" {
				lines = append(lines, strings.Split(tt.lines, ",")...)
			}
			r := makeRoots(t, tt.euid, lines...)
			base := filepath.Dir(r.run)
			got, err := r.pick()
			if tt.want == "" {
				locktest.ExpectError(t, err, r.lock, "--store") // a remedy
				return
			}
			if err != nil || got != filepath.Join(base, tt.want) {
				t.Errorf("pick = %q, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// A user whose ID on the host is hidden gets the directory that belongs to the user, and no new one.
func TestDefaultDirectoryOfHiddenUser(t *testing.T) {
	const parents = "run 755,run/golock 1777,run/lock 1777,run/golock/7 700 7,"
	for _, tt := range []struct{ name, line, want string }{
		{"made outside", "run/lock/golock-4711 700 4242", "run/lock/golock-4711"},
		{"made outside, preferred", "run/golock/4711 700 4242", "run/golock/4711"},
		{"not made", "run/lock/golock-4242 700 7", ""},
		{"of another name", "run/lock/golock-x 700 4242", ""},
		{"not a directory", "run/lock/golock-4711 file 4242", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := makeRoots(t, somebody, strings.Split(parents+tt.line, ",")...)
			r.user = userns.Unknown
			got, err := r.pick()
			if tt.want == "" {
				locktest.ExpectError(t, err, "hides which user", "run golock once outside", "--store")
			} else if err != nil || got != filepath.Join(filepath.Dir(r.run), tt.want) {
				t.Errorf("pick = %q, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// What is at the place of the default directory must be a directory of this
// user that nobody else can write; no other place is taken instead, and nothing
// is changed.
func TestDefaultDirectoryIsNotTrustedBlindly(t *testing.T) {
	for _, tt := range []struct {
		name, lines, want string
	}{
		{"foreign", "run/lock/golock-4242 700 7", "belongs to user 7"},
		{"foreign, with the remedy", "run/lock/golock-4242 700 7", "golock-4242; or name"},
		{"root's", "run/lock/golock-4242 700", "belongs to user 0"},
		{"group can write", "run/lock/golock-4242 770 4242", "chmod 700"},
		{"all can write", "run/lock/golock-4242 702 4242", "chmod 700"},
		{"symbolic link", "other 700 4242,run/lock/golock-4242 -> other", "belongs to user 0"},
		{"file", "run/lock/golock-4242 file", "belongs to user 0"},
		{"own file", "run/lock/golock-4242 file 4242", "is not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := makeRoots(t, somebody, append([]string{"run 755", "run/lock 1777", "tmp 1777"}, strings.Split(tt.lines, ",")...)...)
			for _, create := range []bool{true, false} {
				d, err := openDirectory("", r, create)
				if err == nil {
					unix.Close(d.fd)
					t.Fatalf("%s was accepted", d.path)
				}
				locktest.ExpectError(t, err, r.lock+"/golock-4242", tt.want)
			}
			for _, made := range []string{r.run + "/golock", r.tmp + "/golock-4242"} {
				if _, err := os.Lstat(made); err == nil {
					t.Errorf("%s was made instead", made)
				}
			}
		})
	}
}

// Root's places come out the same under every umask.
func TestUmaskDoesNotChangeTheDefaultDirectory(t *testing.T) {
	r := makeRoots(t, 0, "run 755", "run/lock 1777")
	old := unix.Umask(0o077)
	d, err := openDirectory("", r, true)
	unix.Umask(old)
	testkit.Must(t, err)
	unix.Close(d.fd)
	for path, want := range map[string]os.FileMode{r.run + "/golock": 0o755, r.run + "/golock/0": 0o700} {
		info, err := os.Stat(path)
		testkit.Must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

// A /tmp that only one service sees is refused, also if the user has a directory in it; the
// other places are not concerned.
func TestPrivateTmpIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, root, point string
		want              string
	}{
		{"systemd, /tmp on disk", "/tmp/systemd-private-0123-job.service-abc/tmp", "", "tmpfiles.d"},
		{"systemd, /tmp in memory", "/systemd-private-0123-job.service-abc/tmp", "", "--store"},
		{"tmpfs", "/", "", ""},
		{"another mount point", "/tmp/systemd-private-0123-job.service-abc/tmp", "/var/tmp", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := makeRoots(t, somebody, "run 755", "run/lock 755", "tmp 1777")
			r.mountOf = func(path string) (locks.Mount, error) {
				return locks.Mount{Root: tt.root, Point: cmp.Or(tt.point, path)}, nil
			}
			look := func(want string) {
				t.Helper()
				_, err := openDirectory("", r, false)
				if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("openDirectory = %v, want %q", err, want)
				}
			}
			look(tt.want)
			testkit.Must(t, os.Mkdir(r.tmp+"/golock-4242", 0o700))
			testkit.Must(t, os.Chown(r.tmp+"/golock-4242", somebody, somebody))
			look(tt.want)
			testkit.Must(t, os.Remove(r.tmp+"/golock-4242"))
			testkit.Must(t, unix.Chmod(r.lock, 0o1777))
			look("")
		})
	}
}
