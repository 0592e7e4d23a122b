package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/userns"
)

// checkWriters refuses an open file that another user can write or could have written, because such a
// file could name another store.
func (f Files) checkWriters(fd int, path string, st *syscall.Stat_t) error {
	const writableByGroup, writableByAll = 0o020, 0o002
	ownerIsTrusted := st.Uid == 0 || int(st.Uid) == f.UID || isOfUnmappedRoot(fd, st)
	groupCanWrite := st.Mode&writableByGroup != 0 && !f.isPrivateGroup(fd, st)
	allCanWrite := st.Mode&writableByAll != 0
	if ownerIsTrusted && !groupCanWrite && !allCanWrite {
		return nil
	}
	mount := provisionOf(fd)
	switch {
	case allCanWrite, groupCanWrite && mount != onReadOnlyMount:
		return fmt.Errorf("other users can write to it (mode %04o): chmod go-w %s", st.Mode&0o7777, path)
	case !ownerIsTrusted && mount == notProvided:
		return fmt.Errorf("belongs to user %d, who could write anything into it: chown %d %s", st.Uid, f.UID, path)
	}
	return nil
}

// isOfUnmappedRoot reports whether a file belongs to root of the host, in a user namespace that does
// not map root. There the owner stands for every user without a mapping, so the file must be in a
// directory where root alone puts files.
func isOfUnmappedRoot(fd int, st *syscall.Stat_t) bool {
	root, isMapped := userns.Root()
	if isMapped || st.Uid != root {
		return false
	}
	path, err := os.Readlink(descriptorPath(fd))
	isIn := func(dir string) bool { return strings.HasPrefix(path, dir) }
	return err == nil && slices.ContainsFunc([]string{"/etc/", "/run/secrets/", "/run/credentials/"}, isIn)
}

// isPrivateGroup reports whether the user is the only member of the group of a file, as on hosts with
// a umask of 002. It must be the user's primary group, have the user's name, and be the group of no
// other user. A file with an access control list does not qualify: the list shows in the mode of the
// group, whatever users it names.
func (f Files) isPrivateGroup(fd int, st *syscall.Stat_t) bool {
	for _, list := range []string{"system.posix_acl_access", "system.nfs4_acl"} {
		_, err := unix.Fgetxattr(fd, list, nil)
		if err != unix.ENODATA && err != unix.EOPNOTSUPP {
			return false
		}
	}
	user, err := f.Users.User(f.UID)
	if err != nil || user.Group != int(st.Gid) {
		return false
	}
	group, err := f.Users.GroupOf(user.Group)
	if err != nil || group.Name != user.Name {
		return false
	}
	others, err := f.Users.PrimaryUsers(user.Group)
	isOther := func(name string) bool { return name != user.Name }
	return err == nil && !slices.ContainsFunc(append(others, group.Members...), isOther)
}

// provision says whether somebody who may mount file systems has provided a file, such as a secret of a
// container, that this process cannot write. Such a file may belong to any user.
type provision int

const (
	notProvided     provision = iota
	mountedByItself           // the file is a mount point; its owner and its group may be able to write it
	onReadOnlyMount           // no process here can write the file
)

// provisionOf returns the provision of an open file. If that is not known, it is notProvided.
func provisionOf(fd int) provision {
	var fs unix.Statfs_t
	if !cannotWrite(fd) || unix.Fstatfs(fd, &fs) != nil {
		return notProvided
	}
	if fs.Type == unix.FUSE_SUPER_MAGIC { // any user may mount a FUSE file system
		return notProvided
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return onReadOnlyMount
	}
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st)
	if err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return mountedByItself
	}
	return notProvided
}

// cannotWrite reports whether the kernel refuses to let this process write a file.
func cannotWrite(fd int) bool {
	err := unix.Faccessat(unix.AT_FDCWD, descriptorPath(fd), unix.W_OK, unix.AT_EACCESS)
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS)
}

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
