package locks

import "testing"

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
			"/", "/mnt/ssh", "fuse.sshfs", "me@host:/srv", "rw,nosuid,rw,user_id=0",
		},
		"40 25 0:44 /srv /mnt/sshfs rw - fuse /srv/sshfs rw": {"/srv", "/mnt/sshfs", "fuse", "/srv/sshfs", "rw,rw"},
		"41 25 0:45 / /mnt/cut rw\n":                         {},
		"short":                                              {},
		"":                                                   {},
	} {
		if got, _ := readMount(line); got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
	m, id := readMount("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - nfs4 server:/root rw,vers=4.2,hard\n")
	if id != "36" {
		t.Errorf("number %s", id)
	}
	if value, there := m.Option("vers"); !there || value != "4.2" {
		t.Errorf("%q %v", value, there)
	}
	if _, there := m.Option("soft"); there {
		t.Error("soft")
	}
}
