package locks

import (
	"slices"
	"strings"
	"testing"
)

func TestMountOf(t *testing.T) {
	if m, err := MountOf("/proc/self"); err != nil || m.Type != "proc" || m.Point != "/proc" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := MountOf("/nowhere/at/all"); err == nil {
		t.Errorf("%+v", m)
	}
}

// Only the part after the optional tags tells type, source and options. Lines that are
// no mounts are passed over.
func TestReadMount(t *testing.T) {
	for line, want := range map[string]Mount{
		"36 25 0:40 / /mnt/ssh rw,nosuid shared:7 master:3 - fuse.sshfs me@host:/srv rw,user_id=0\n": {
			"/", "/mnt/ssh", "fuse.sshfs", "me@host:/srv", "rw,nosuid,rw,user_id=0", "0:40", "36", "25",
		},
		"40 25 0:44 /srv /mnt/sshfs rw - fuse /srv/sshfs rw": {"/srv", "/mnt/sshfs", "fuse", "/srv/sshfs", "rw,rw", "0:44", "40", "25"},
		"41 25 0:45 / /mnt/cut rw\n":                         {},
		"short":                                              {},
		"":                                                   {},
	} {
		if got := readMount(line); got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
	m := readMount("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - nfs4 server:/root rw,vers=4.2,hard\n")
	if value, there := m.Option("vers"); !there || value != "4.2" {
		t.Errorf("%q %v", value, there)
	}
	if _, there := m.Option("soft"); there {
		t.Error("soft")
	}
}

// The way to a path goes through the mounts that are visible: not through those below a place where
// something else was mounted later.
func TestWhereAPathLeads(t *testing.T) {
	var host, unit, bound Mounts
	for line := range strings.Lines("20 1 8:1 / / rw - ext4 /dev/sda rw\n21 20 0:20 / /run rw - tmpfs tmpfs rw\n22 21 0:21 / /run/lock rw - tmpfs tmpfs rw\n") {
		host = append(host, readMount(line))
	}
	unit = append(slices.Clone(host), readMount("30 21 0:30 / /run rw - tmpfs tmpfs rw"))
	bound = append(slices.Clone(unit), readMount("31 30 0:20 /golock /run/golock rw - tmpfs tmpfs rw"))
	for _, c := range []struct {
		in         Mounts
		path, want string
	}{
		{host, "/", "8:1 /"},
		{host, "/runner", "8:1 /runner"},
		{host, "/run/golock", "0:20 /golock"},
		{host, "/run/lock/golock-1", "0:21 /golock-1"},
		{unit, "/run/golock", "0:30 /golock"},
		{unit, "/run/lock", "0:30 /lock"},
		{bound, "/run/golock", "0:20 /golock"},
		{bound, "/run", "0:30 /"},
		{host[1:], "/run", ""}, // a chroot
		{nil, "/", ""},
	} {
		if got := c.in.Where(c.path); got != c.want {
			t.Errorf("%s leads to %q, want %q", c.path, got, c.want)
		}
	}
}
