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

// checkWriters refuses an open file that another user can write, or could have written: it could name
// another store.
func (f Files) checkWriters(fd int, path string, st *syscall.Stat_t) error {
	const writableByGroup, writableByAll = 0o020, 0o002
	isOurs := st.Uid == 0 || int(st.Uid) == f.UID || isOfUnmappedRoot(fd, st)
	isGroups := st.Mode&writableByGroup != 0 && !f.isPrivateGroup(fd, st)
	if isOurs && !isGroups && st.Mode&writableByAll == 0 {
		return nil
	}
	provided := provisionOf(fd)
	switch {
	case st.Mode&writableByAll != 0, isGroups && provided != onReadOnlyMount:
		return fmt.Errorf("other users can write to it (mode %04o): chmod go-w %s", st.Mode&0o7777, path)
	case !isOurs && provided == notProvided:
		return fmt.Errorf("belongs to user %d, who could write anything into it: chown %d %s", st.Uid, f.UID, path)
	}
	return nil
}

// isOfUnmappedRoot reports whether a file belongs to root of the host in a user namespace that does not map
// root. Its owner there stands for every user without a mapping, so the file must be where root
// alone puts files.
func isOfUnmappedRoot(fd int, st *syscall.Stat_t) bool {
	root, mapped := userns.Root()
	if mapped || st.Uid != root {
		return false
	}
	path, err := os.Readlink(descriptorPath(fd))
	return err == nil && slices.ContainsFunc([]string{"/etc/", "/run/secrets/", "/run/credentials/"}, func(dir string) bool {
		return strings.HasPrefix(path, dir)
	})
}

// isPrivateGroup reports whether the group of a file has no member but the user, as with a umask of 002: it
// is the user's primary group, has the user's name and is nobody else's. An access control list shows in the
// bits of the group, whoever is on it.
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

// provision says how a file that this process cannot write was put into its place by who may mount: a secret
// of a container belongs to any user.
type provision int

const (
	notProvided     provision = iota
	mountedByItself           // its owner can write it, and its group
	onReadOnlyMount           // nobody here can write it
)

func provisionOf(fd int) provision {
	var fs unix.Statfs_t
	if !cannotWrite(fd) || unix.Fstatfs(fd, &fs) != nil || fs.Type == unix.FUSE_SUPER_MAGIC { // FUSE is mounted by users
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
