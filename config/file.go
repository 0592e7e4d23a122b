package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golock/internal/eintr"
	"golock/internal/procfs"
)

// maxSize keeps a path given by mistake from filling the memory.
const maxSize = 1 << 20

// Files says where the default files are and whom they may belong to.
type Files struct {
	System string // the path of the system's file
	User   string // the path of the user's file below the home directory
	Passwd string // the password database; "": there is no user's file
	UID    int    // the user who may own files, as root may
}

// HostFiles gives the files of this host for the effective user. No environment
// variable counts: cron and a login shell must find the same file.
func HostFiles() Files {
	return Files{
		System: "/etc/golock.toml",
		User:   ".config/golock/config.toml",
		Passwd: "/etc/passwd",
		UID:    os.Geteuid(),
	}
}

// Paths gives the default files, whether they exist or not, the strongest first. The
// home directory is that of the password database; package os/user would fall back to $HOME.
func (f Files) Paths() (paths []string, err error) {
	text, err := procfs.Read(f.Passwd, 8192)
	if err != nil && !isMissing(err) {
		problem := fmt.Sprintf("cannot look up the home directory of user %d: the file cannot be read: %v", f.UID, err)
		return nil, &Error{Source{File: f.Passwd}, problem, err}
	}
	uid := strconv.Itoa(f.UID)
	for line := range strings.Lines(text) {
		// name:password:UID:GID:GECOS:directory:shell
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 6 || fields[2] != uid {
			continue
		}
		if strings.HasPrefix(fields[5], "/") {
			paths = append(paths, filepath.Join(fields[5], f.User))
		}
		break
	}
	return append(paths, f.System), nil
}

// Read gives the content of a file that nobody but root and the user can have
// written, and its mode. The error does not name the file.
//
// It checks the open descriptor, so that this file is the one that is read. Write
// permission that an ACL gives shows in the group bits. Package os would set up the
// runtime's poller, at every start.
func (f Files) Read(path string) (data []byte, mode uint32, err error) {
	// Do not wait for the writer of a FIFO, do not get a controlling terminal.
	fd, err := eintr.Get(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	})
	if isMissing(err) {
		return nil, 0, err
	}
	if err != nil {
		return nil, 0, fmt.Errorf("the file cannot be opened: %w", err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	err = syscall.Fstat(fd, &st)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("the file cannot be examined: %w", err)
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return nil, 0, errors.New("is a directory, not a file")
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return nil, 0, errors.New("is not a regular file")
	case st.Uid != 0 && int(st.Uid) != f.UID:
		return nil, 0, fmt.Errorf("belongs to user %d, who could write anything into it: chown %d %s", st.Uid, f.UID, path)
	case st.Mode&0o022 != 0:
		return nil, 0, fmt.Errorf("other users can write to it (mode %04o): chmod go-w %s", st.Mode&0o7777, path)
	}
	for chunk := make([]byte, 8192); len(data) <= maxSize; {
		n, err := eintr.Get(func() (int, error) { return syscall.Read(fd, chunk) })
		if err != nil {
			return nil, 0, fmt.Errorf("the file cannot be read: %w", err)
		}
		if n == 0 {
			return data, st.Mode, nil
		}
		data = append(data, chunk[:n]...)
	}
	return nil, 0, errors.New("is larger than 1 MiB, which no configuration is")
}

// isHidden reports whether a directory above the path cannot be searched: a
// service with ProtectHome= may not look into its home.
func isHidden(path string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(path, &st) == syscall.EACCES
}

func isMissing(err error) bool { return err == syscall.ENOENT || err == syscall.ENOTDIR }
