package local

import (
	"testing"

	"golang.org/x/sys/unix"
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

// Only the type counts, not what is mounted.
func TestNetworkFUSE(t *testing.T) {
	for fsType, want := range map[string]bool{
		"fuse.sshfs": true, "fuse.s3fs": true, "fuse.glusterfs": true,
		"fuse": false, "fuseblk": false, "fuse.fuse-overlayfs": false, "": false,
	} {
		if got := isNetworkFUSE(fsType); got != want {
			t.Errorf("isNetworkFUSE(%q) = %v", fsType, got)
		}
	}
}
