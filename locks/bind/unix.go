package bind

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
	"golock/locks/lockfile"
)

// longestName is the number of bytes of the longest address of a unix socket (unix(7)). It includes the
// @ that stands for the first byte of an abstract name.
const longestName = 107

// socketName is the address of a unix socket: @NAME for an abstract name, or the path of a socket
// file.
type socketName string

// NewAbstract makes a store of an abstract name. The name stays taken as long as any process has the
// socket open, also a process that a command has left behind.
func NewAbstract(text string) (*Store, error) {
	if text == "" || len(text) >= longestName || strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("name: is %d bytes long: expected 1 to %d without a zero byte, as in bind://@job", len(text), longestName-1)
	}
	return &Store{socketName("@" + text)}, nil
}

// NewSocket makes a store of a socket file, by its absolute path.
func NewSocket(path string) (*Store, error) {
	if len(path) > longestName {
		return nil, fmt.Errorf("path: is %d bytes long, a socket's can have at most %d", len(path), longestName)
	}
	return &Store{socketName(path)}, nil
}

func (n socketName) url() string { return (&url.URL{Scheme: "bind", Path: string(n)}).String() }

func (n socketName) isFile() bool { return n[0] == '/' }

// unit returns NAME, NAME.1, NAME.2 ...
func (n socketName) unit(number int) socketName {
	if number == 0 {
		return n
	}
	return n + "." + socketName(strconv.Itoa(number))
}

func (n socketName) units() int {
	units := 1
	for units < maxUnits && len(n.unit(units)) <= longestName {
		units++
	}
	return units
}

func (n socketName) take(unit int) (fds []int, release func() error, err error) {
	name := string(n.unit(unit))
	if n.isFile() {
		return takeFile(name)
	}
	return listen(unix.AF_UNIX, &unix.SockaddrUnix{Name: name}, name)
}

// takeFile takes a socket file. The file stays when its holder dies, so the next holder removes it. Only
// a process that has PATH.lock locked may remove the file or bind it. A holder keeps PATH.lock locked.
func takeFile(path string) (fds []int, release func() error, err error) {
	lock, err := lockfile.New(lockfile.Flock, path+".lock").Take(locks.Request{Claim: locks.Claim{Max: 1}})
	if err != nil {
		return nil, nil, err
	}
	var closeSocket func() error
	err = removeLeftOver(path)
	if err == nil {
		fds, closeSocket, err = listen(unix.AF_UNIX, &unix.SockaddrUnix{Name: path}, path)
	}
	if err != nil {
		_ = lock.Release(context.Background())
		return nil, nil, err
	}
	var bound unix.Stat_t
	_ = unix.Lstat(path, &bound) // if this fails, the next holder removes the file
	release = func() error {
		var atPath unix.Stat_t
		if unix.Lstat(path, &atPath) == nil && kernel.SameFile(&atPath, &bound) {
			_ = unix.Unlink(path)
		}
		_ = closeSocket()
		return lock.Release(context.Background())
	}
	return append(fds, lock.Files()...), release, nil
}

// removeLeftOver removes a socket file at which no process listens. It fails with kernel.ErrTaken if a
// process listens, and with another error if the file is not a socket.
func removeLeftOver(path string) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &locks.PathError{Op: "stat", Path: path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return &locks.PathError{Path: path, Err: errors.New("exists and is not a socket"), Hint: "golock does not remove it; name another file, or the target of the symbolic link"}
	}
	fd, err := newSocket(unix.AF_UNIX, path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	switch err {
	case nil, unix.EAGAIN, unix.EPROTOTYPE, unix.EINTR:
		// EAGAIN says that the queue of the listener is full, EPROTOTYPE that the socket has another type.
		return kernel.ErrTaken
	case unix.ECONNREFUSED, unix.ENOENT: // no process listens
	default:
		return &locks.PathError{Op: "connect", Path: path, Err: err, Hint: "only a user who may write the socket can see whether somebody listens"}
	}
	if err := unix.Unlink(path); err != nil && err != unix.ENOENT {
		return &locks.PathError{Op: "unlink", Path: path, Err: err, Hint: "it was left behind by somebody whose files only that user may remove"}
	}
	return nil
}

func (n socketName) listeners() map[string]uint64 { return procfs.UnixListeners() }

// listenerKey returns "" for a socket file that was released, because its socket may still be open.
func (n socketName) listenerKey(unit int) string {
	path := string(n.unit(unit))
	if _, err := os.Lstat(path); err != nil && n.isFile() {
		return ""
	}
	return path
}

// examine examines the directory of a socket file. An abstract name has none.
func (n socketName) examine(found *locks.Findings) {
	if !n.isFile() {
		found.OK("name", "what a command leaves behind keeps the slot for as long as it has the socket open; --close prevents that")
		return
	}
	dir := path.Dir(string(n))
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	found.Judge("directory",
		locks.Row{When: err == nil, Level: locks.OK, What: dir + " can be written"},
		locks.Row{
			When: true, Level: locks.Problem,
			What: fmt.Sprintf("%s cannot be written: %v", dir, err),
			Why:  "no socket can be made there",
			Fix:  "give this user the right to write it",
		},
	)
}
