package local

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// networkFS names the file system of a directory if it is shared over a network, or "".
func networkFS(fd int, path string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	if uint32(fs.Type) != unix.FUSE_SUPER_MAGIC {
		return networkMagic(uint32(fs.Type)), nil
	}
	if m, err := locks.MountOf(path); err == nil && isNetworkFUSE(m.Type) {
		return m.Type, nil
	}
	return "", nil
}

// networkMagic knows file systems by the numbers of statfs(2).
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
	}[magic]
}

// isNetworkFUSE knows the types of FUSE file systems that reach over a network. Others
// are let pass: the root of many a container is one.
func isNetworkFUSE(fsType string) bool {
	known := []string{
		"sshfs", "s3fs", "gcsfuse", "goofys", "rclone", "glusterfs", "ceph", "mfs", "juicefs", "lizardfs",
		"davfs", "curlftpfs", "cifs", "nfs", "smb", "hdfs", "blobfuse",
	}
	return slices.ContainsFunc(known, func(name string) bool { return strings.Contains(fsType, name) })
}
