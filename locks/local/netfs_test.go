package local

import (
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC:   "NFS",
		unix.CIFS_SUPER_MAGIC:  "SMB",
		unix.SMB2_SUPER_MAGIC:  "SMB",
		unix.V9FS_MAGIC:        "9p",
		unix.AFS_SUPER_MAGIC:   "AFS",
		unix.CEPH_SUPER_MAGIC:  "Ceph",
		unix.CODA_SUPER_MAGIC:  "Coda",
		unix.OCFS2_SUPER_MAGIC: "OCFS2",
		0x0bd00bd0:             "Lustre",
		0x01161970:             "GFS2",
		0x47504653:             "GPFS",

		unix.EXT4_SUPER_MAGIC:      "",
		unix.TMPFS_MAGIC:           "",
		unix.RAMFS_MAGIC:           "",
		unix.XFS_SUPER_MAGIC:       "",
		unix.BTRFS_SUPER_MAGIC:     "",
		unix.OVERLAYFS_SUPER_MAGIC: "",
		0x2fc12fc1:                 "", // ZFS
	} {
		if got := networkMagic(magic); got != want {
			t.Errorf("networkMagic(%#x) = %q, want %q", magic, got, want)
		}
	}
}

func TestFUSETypeIsReadFromMountinfo(t *testing.T) {
	const mountinfo = `25 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw

short
36 25 0:40 / /mnt/ssh rw,nosuid,nodev shared:7 master:3 - fuse.sshfs me@host:/srv rw,user_id=0
37 25 0:41 / /mnt/a\040-\040b rw - fuse.s3fs s3fs rw
38 25 0:42 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw
39 25 0:43 / /mnt/root rw - fuse.fuse-overlayfs fuse-overlayfs rw
40 25 0:44 / /mnt/sshfs rw - fuse /srv/sshfs rw
41 25 0:45 / /mnt/cut rw
42 25 0:46 / /mnt/none rw shared:8 - fuse.glusterfs host:/vol rw
`
	for device, want := range map[string]string{
		"0:40":  "fuse.sshfs",
		"0:41":  "fuse.s3fs",
		"0:42":  "",
		"0:43":  "",
		"0:44":  "", // only the type counts, not what is mounted
		"0:45":  "",
		"0:46":  "fuse.glusterfs",
		"0:4":   "",
		"254:0": "",
		"":      "",
	} {
		if got := networkFUSE(mountinfo, device); got != want {
			t.Errorf("networkFUSE(%q) = %q, want %q", device, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		networkFUSE(rapid.String().Draw(t, "mountinfo"), "0:40")
	})
}

func TestLocalFileSystemIsAccepted(t *testing.T) {
	for _, dir := range []string{t.TempDir(), mount(t, "tmpfs", "size=64k")} {
		take(t, newStore(t, dir), "x")
	}
}
