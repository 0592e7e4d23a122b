package local

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC:       "NFS",
		0x0bd00bd0:                 "Lustre",
		unix.EXT4_SUPER_MAGIC:      "",
		unix.TMPFS_MAGIC:           "",
		unix.OVERLAYFS_SUPER_MAGIC: "",
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
