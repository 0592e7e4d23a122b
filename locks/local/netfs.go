package local

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFS names the file system that an open directory is on if its locks
// are another machine's business, or "" if it is a local one.
func (r roots) networkFS(fd int, st *unix.Stat_t) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	if uint32(fs.Type) == unix.FUSE_SUPER_MAGIC {
		text, err := os.ReadFile(r.mountinfo)
		if err != nil {
			return "", nil
		}
		return networkFUSE(string(text), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))), nil
	}
	return networkMagic(uint32(fs.Type)), nil
}

// networkMagic knows file systems by the numbers of statfs(2).
func networkMagic(magic uint32) string {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC:
		return "SMB"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.CODA_SUPER_MAGIC:
		return "Coda"
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x01161970:
		return "GFS2"
	case 0x47504653:
		return "GPFS"
	case 0x20030528:
		return "OrangeFS"
	case 0x19830326:
		return "BeeGFS"
	}
	return ""
}

// networkFUSE finds the mount of a device in the text of mountinfo (proc(5))
// and names its type if it is known to reach over a network. Others are let
// pass: the root of many a container is a FUSE file system.
func networkFUSE(mountinfo, device string) string {
	for line := range strings.Lines(mountinfo) {
		field := strings.Fields(line)
		if len(field) < 5 || field[2] != device {
			continue
		}
		_, after, _ := strings.Cut(line, " - ")
		fsType, _, _ := strings.Cut(after, " ")
		for _, known := range []string{"sshfs", "s3fs", "gcsfuse", "goofys", "rclone", "glusterfs", "ceph", "mfs", "juicefs", "lizardfs", "davfs", "curlftpfs", "cifs", "nfs", "smb", "hdfs", "blobfuse"} {
			if strings.Contains(fsType, known) {
				return fsType
			}
		}
	}
	return ""
}
