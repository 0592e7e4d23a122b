package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxSize is far above any configuration written by hand; it keeps a path given
// by mistake from filling the memory.
const maxSize = 1 << 20

// Files says where the default files are and whom they may belong to. Its zero
// value reads no file unless the setting ConfigKey names one.
type Files struct {
	System string // the path of the system's file; "" for none
	User   string // the path of the user's file below the home directory
	Passwd string // the password database that knows the home directory; "" for no user's file
	UID    int    // the user on whose behalf files are read, and who may own them as root may
}

// HostFiles returns the files of this machine for the effective user. No
// environment variable has a part in it: a cron job and a login shell of one
// user must find the same lock.
func HostFiles() Files {
	return Files{
		System: "/etc/golock.toml",
		User:   ".config/golock/config.toml",
		Passwd: "/etc/passwd",
		UID:    os.Geteuid(),
	}
}

// Paths returns the default files, whether they exist or not, the strongest
// first. A user who is not in the password database has none of his own. The
// error is an *Error about a database that exists and cannot be read.
func (f Files) Paths() ([]string, error) {
	home, err := homeOf(f.UID, f.Passwd)
	if err != nil {
		return nil, err
	}
	var paths []string
	if home != "" {
		paths = append(paths, filepath.Join(home, f.User))
	}
	if f.System != "" {
		paths = append(paths, f.System)
	}
	return paths, nil
}

// read returns the content of a file that nobody but root and the user can have
// written; the error is ENOENT or ENOTDIR for a file that does not exist, else
// an *Error. All checks are made on the open descriptor, so that the file that
// was checked is the one that is read, whatever happens to its path meanwhile.
// Write permission that an ACL gives shows in the group bits.
func (f Files) read(path string) ([]byte, error) {
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, &Error{Source{File: path}, fmt.Sprintf(format, args...)}
	}
	file, err := openFile(path)
	if isMissing(err) {
		return nil, err
	}
	if err != nil {
		return fail("the file cannot be opened: %v", err)
	}
	defer file.close()

	st, err := file.stat()
	switch {
	case err != nil:
		return fail("the file cannot be examined: %v", err)
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return fail("is a directory, not a file")
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return fail("is not a regular file")
	case st.Uid != 0 && int(st.Uid) != f.UID:
		return fail("belongs to user %d, who could write anything into it: chown %d %s", st.Uid, f.UID, path)
	case st.Mode&0o022 != 0:
		return fail("other users can write to it (mode %04o): chmod go-w %s", st.Mode&0o7777, path)
	}

	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return fail("the file cannot be read: %v", err)
	}
	if len(data) > maxSize {
		return fail("is larger than 1 MiB, which no configuration is")
	}
	return data, nil
}

func isMissing(err error) bool { return err == syscall.ENOENT || err == syscall.ENOTDIR }
