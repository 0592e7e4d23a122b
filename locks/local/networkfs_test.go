package local

import (
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
)

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC:       "NFS",
		0x0bd00bd0:                 "Lustre",
		0x786f4256:                 "vboxsf",
		0xbacbacbc:                 "vmhgfs",
		0x7c7c6673:                 "prl_fs",
		unix.V9FS_MAGIC:            "9p",
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
		"virtiofs": true, "fuse.grpcfuse": true, "fuse.osxfs": true, "fuse.vmhgfs-fuse": true,
		"fuse": false, "fuseblk": false, "fuse.fuse-overlayfs": false, "": false,
	} {
		if got := isNetworkFUSE(fsType); got != want {
			t.Errorf("isNetworkFUSE(%q) = %v", fsType, got)
		}
	}
}

func TestMirrorsAreKnown(t *testing.T) {
	origin := t.TempDir()
	for m, want := range map[locks.Mount]bool{
		{Type: "fuse.bindfs", Source: "/nowhere"}:                      true,
		{Type: "fuse", Source: origin}:                                 true,
		{Type: "fuse", Source: "/dev/null"}:                            false,
		{Type: "fuse", Source: "fuse-overlayfs"}:                       false,
		{Type: "fuse.fuse-overlayfs", Source: "fuse-overlayfs"}:        false,
		{Type: "fuse.gocryptfs", Source: origin}:                       false,
		{Type: "ext4", Source: origin, Root: "/", Point: "/somewhere"}: false,
	} {
		if got := isMirror(m); got != want {
			t.Errorf("%+v: %v", m, got)
		}
	}
}
