package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golock/internal/eintr"
	"golock/internal/passwd"
	"golock/internal/userns"
)

// maxSize keeps a path given by mistake from filling the memory.
const maxSize = 1 << 20

// Files says where the default files are and whom they may belong to.
type Files struct {
	System string           // the path of the system's file
	User   string           // the path of the user's file below the home directory
	Users  passwd.Databases // tells the home directory and the groups of a user
	UID    int              // the user who may own files, beside root
	Home   int              // the user whose home directory counts: the ID of UID outside of the user namespace, or userns.Unknown
}

// HostFiles returns the files of this host for the effective user. It reads no environment variable,
// so that cron and a login shell find the same file.
func HostFiles() Files {
	return Files{
		System: "/etc/golock.toml",
		User:   ".config/golock/config.toml",
		Users:  passwd.Host(),
		UID:    os.Geteuid(),
		Home:   userns.RealUser(os.Geteuid()),
	}
}

// UserFile returns the path of the user's file, whether it exists or not. It returns "" if the user is
// unknown or has no home directory. The home directory comes from the password database; package
// os/user would fall back to $HOME.
func (f Files) UserFile() (path string, err error) {
	if f.Home == userns.Unknown {
		return "", errors.New("this user namespace hides which user of the host runs golock, so no user's configuration file counts")
	}
	user, err := f.Users.User(f.Home)
	switch {
	case err == passwd.ErrUnknown:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the home directory of user %d cannot be looked up; its configuration file is not read: %w", f.Home, err)
	case !strings.HasPrefix(user.Home, "/"):
		return "", nil
	}
	return filepath.Join(user.Home, f.User), nil
}

// Content is the content of a file.
type Content struct {
	Data []byte
	// OthersCanRead reports whether other users can read the file. It is false for a file that somebody has
	// mounted for this process, such as a secret of a container, whatever its mode.
	OthersCanRead bool
}

// Read reads a file, and refuses a file that another user than root and the effective user can write.
// The error does not name the file. It wraps an errno if the file cannot be reached or read.
//
// Read checks the open descriptor, so that it reads the file that it has checked. It does not use
// package os, which would start the runtime's poller at every start.
func (f Files) Read(path string) (c Content, err error) {
	// O_NONBLOCK: do not wait for the writer of a FIFO. O_NOCTTY: do not get a controlling terminal.
	fd, err := eintr.Get(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if isMissing(err) {
		return c, missing(path, err)
	}
	if err != nil {
		return c, fmt.Errorf("the file cannot be opened: %w", err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	err = syscall.Fstat(fd, &st)
	switch {
	case err != nil:
		return c, fmt.Errorf("the file cannot be examined: %w", err)
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return c, errors.New("is a directory, not a file")
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return c, errors.New("is not a regular file")
	}
	if err := f.checkWriters(fd, path, &st); err != nil {
		return c, err
	}
	const readableByOthers = 0o044
	c.OthersCanRead = st.Mode&readableByOthers != 0 && provisionOf(fd) == notProvided
	chunk := make([]byte, 8192)
	for len(c.Data) <= maxSize {
		n, err := eintr.Get(func() (int, error) { return syscall.Read(fd, chunk) })
		if err != nil {
			return c, fmt.Errorf("the file cannot be read: %w", err)
		}
		if n == 0 {
			return c, nil
		}
		c.Data = append(c.Data, chunk[:n]...)
	}
	return c, errors.New("is larger than 1 MiB, which no configuration is")
}

// isOutOfReach reports whether an error of Read says that the file may exist, but that this user or
// this host cannot reach it now.
func isOutOfReach(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENOENT, // the target of a symbolic link, see missing
		syscall.EACCES, syscall.EPERM, // the home directory of another user
		syscall.EREMOTEIO, syscall.ESTALE, syscall.ENOTCONN, syscall.ETIMEDOUT, // a home directory on a network
		syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ECONNABORTED, syscall.ENODEV:
		return true
	}
	return false
}

// isHiddenOnPurpose reports whether the nearest existing directory above the path has mode 000.
// ProtectHome= of systemd.exec(5) mounts such a directory over home directories.
func isHiddenOnPurpose(path string) bool {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		var st syscall.Stat_t
		if syscall.Lstat(dir, &st) == nil {
			return st.Mode&0o777 == 0
		}
	}
	return false
}

// missing returns err, or another error if a symbolic link without a target is why the path leads
// nowhere: somebody wants a file there, and it may name another store.
func missing(path string, err error) error {
	for above := path; above != filepath.Dir(above); above = filepath.Dir(above) {
		var st syscall.Stat_t
		if syscall.Lstat(above, &st) != nil {
			continue
		}
		isLink := st.Mode&syscall.S_IFMT == syscall.S_IFLNK
		if !isLink || syscall.Stat(above, &st) == nil { // above exists, so the path lacks something below it
			return err
		}
		return fmt.Errorf("the symbolic link %s leads nowhere: %w", above, err)
	}
	return err
}

// isMissing reports whether an error of Read says that there is no file.
func isMissing(err error) bool { return err == syscall.ENOENT || err == syscall.ENOTDIR }
