package local

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// networkFS returns the type of the directory's file system if other hosts or mounts see the
// directory without its kernel locks. Such a file system is shared over a network or with the host
// of a virtual machine, or mirrors another directory. For any other file system networkFS returns "".
func networkFS(fd int, path string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	if uint32(fs.Type) != unix.FUSE_SUPER_MAGIC {
		return networkMagic(uint32(fs.Type)), nil
	}
	if m, err := locks.MountOf(path); err == nil && (isNetworkFUSE(m.Type) || isMirror(m)) {
		return m.Type, nil
	}
	return "", nil
}

// isMirror reports whether a FUSE mount shows another directory, as bindfs does. Its type is
// fuse.bindfs, or only "fuse" with that directory as source. The kernel keeps locks for each mount,
// so a process that locks in one of the two directories does not see the locks in the other.
func isMirror(m locks.Mount) bool {
	var st unix.Stat_t
	if m.Type != "fuse" || !strings.HasPrefix(m.Source, "/") {
		return m.Type == "fuse.bindfs"
	}
	return unix.Stat(m.Source, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// networkMagic returns the name of a file system from its number in statfs(2).
func networkMagic(magic uint32) string {
	return map[uint32]string{
		unix.NFS_SUPER_MAGIC:   "NFS",
		unix.CIFS_SUPER_MAGIC:  "SMB",
		unix.SMB2_SUPER_MAGIC:  "SMB",
		unix.SMB_SUPER_MAGIC:   "SMB",
		unix.V9FS_MAGIC:        "9p",
		unix.AFS_SUPER_MAGIC:   "AFS",
		unix.AFS_FS_MAGIC:      "AFS",
		unix.CEPH_SUPER_MAGIC:  "Ceph",
		unix.CODA_SUPER_MAGIC:  "Coda",
		unix.OCFS2_SUPER_MAGIC: "OCFS2",
		0x0bd00bd0:             "Lustre",
		0x01161970:             "GFS2",
		0x47504653:             "GPFS",
		0x20030528:             "OrangeFS",
		0x19830326:             "BeeGFS",

		// These types share directories of a virtual machine's host.
		0x786f4256: "vboxsf",
		0xbacbacbc: "vmhgfs",
		0x7c7c6673: "prl_fs",
	}[magic]
}

// isNetworkFUSE reports whether a type of FUSE file system reaches over a network, or to the host
// of a virtual machine. statfs(2) shows virtiofs as FUSE. Other types are allowed, because many
// containers have one as their root.
func isNetworkFUSE(fsType string) bool {
	known := []string{
		"sshfs", "s3fs", "gcsfuse", "goofys", "rclone", "glusterfs", "ceph", "mfs", "juicefs", "lizardfs",
		"davfs", "curlftpfs", "cifs", "nfs", "smb", "hdfs", "blobfuse",
		"virtiofs", "grpcfuse", "osxfs", "vmhgfs", "prl_fs",
	}
	return slices.ContainsFunc(known, func(name string) bool { return strings.Contains(fsType, name) })
}
