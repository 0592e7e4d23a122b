package locks

import "testing"

// Only the part after the optional tags tells type, source and options. Lines that are
// no mounts are passed over.
func TestReadMount(t *testing.T) {
	for line, want := range map[string]Mount{
		"36 25 0:40 / /mnt/ssh rw,nosuid shared:7 master:3 - fuse.sshfs me@host:/srv rw,user_id=0\n": {"/", "/mnt/ssh", "fuse.sshfs", "me@host:/srv", "rw,nosuid,rw,user_id=0"},
		"40 25 0:44 / /mnt/sshfs rw - fuse /srv/sshfs rw":                                            {"/", "/mnt/sshfs", "fuse", "/srv/sshfs", "rw,rw"},
		"41 25 0:45 / /mnt/cut rw\n":                                                                 {},
		"short":                                                                                      {},
		"":                                                                                           {},
	} {
		if got, _, _ := readMount(line); got != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
	if _, id, device := readMount("36 25 0:40 / /mnt rw - fuse x rw"); id != "36" || device != "0:40" {
		t.Errorf("number %s, device %s", id, device)
	}
}
