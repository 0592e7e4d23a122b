package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// socketFile is a socket with a name in the file system, which stays when its
// holder ends without removing it.
type socketFile struct{ path string }

// NewSocket takes an absolute path.
func NewSocket(path string) (*Store, error) {
	if len(path) > longestName {
		return nil, fmt.Errorf("path: is %d bytes long, a socket's can have at most %d", len(path), longestName)
	}
	return &Store{space: &socketFile{path}}, nil
}

func (f *socketFile) url() string { return "bind://" + escape(f.path) }

func (f *socketFile) units() int { return unitsFor(longestName - len(f.path)) }

// take implements space. A file at which nobody listens is left over from a
// holder that was killed. To see that and then to remove it are two steps, and
// between them another newcomer could have done both and bound its own; and to
// bind and to listen are two as well. So whoever wants to bind or to remove does
// it under a second lock, on PATH.lock, which nobody keeps for longer than
// that. It says nothing about who holds the slot.
func (f *socketFile) take(ctx context.Context, unit int) (*held, error) {
	name := unitName(f.path, unit)
	if err := f.vacant(name); err != nil {
		return nil, err
	}
	guard, err := f.guard(ctx, guardWait)
	if err != nil {
		return nil, err
	}
	defer unix.Close(guard)
	if err := f.vacant(name); err != nil {
		return nil, err
	}
	if err := unix.Unlink(name); err != nil && err != unix.ENOENT {
		return nil, &Error{Op: "unlink", Address: name, Err: err, Hint: "it was left behind by somebody whose files only that user may remove"}
	}
	fd, err := listenAt(name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		unix.Close(fd)
		return nil, &Error{Op: "stat", Address: name, Err: err}
	}
	return &held{fd, func(fd int) error { return f.drop(name, &st, fd) }}, nil
}

// vacant gives errTaken if somebody listens, or is another tool that does not,
// and an error if what is there is no socket: it is not ours to remove.
func (f *socketFile) vacant(name string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(name, &st); {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return &Error{Op: "stat", Address: name, Err: err}
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return &Error{Address: name, Err: errors.New("is a symbolic link"), Hint: "name the socket itself"}
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return &Error{Address: name, Err: errors.New("is there and is no socket"), Hint: "it is not removed; name another file"}
	}
	state, err := look(name)
	if err != nil || state == absent {
		return err
	}
	if state == alive || slices.ContainsFunc(list()[name], func(s socket) bool { return s.idle }) {
		return errTaken
	}
	return nil
}

// How long the second lock is waited for. It is there for microseconds, unless a
// process was stopped that has it.
const (
	guardWait  = time.Second
	guardPause = time.Millisecond
	dropWait   = 50 * time.Millisecond
)

// guard takes the second lock. Closing gives it back.
func (f *socketFile) guard(ctx context.Context, limit time.Duration) (int, error) {
	path := f.path + ".lock"
	for until := time.Now().Add(limit); ; {
		fd, err := openGuard(path)
		if err != nil {
			return -1, err
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && same(path, fd) {
			return fd, nil
		}
		unix.Close(fd)
		switch {
		case err != nil && err != unix.EWOULDBLOCK && err != unix.EINTR:
			return -1, &Error{Op: "flock", Address: path, Err: err}
		case ctx.Err() != nil:
			return -1, ctx.Err()
		case time.Now().After(until):
			return -1, &Error{Address: f.path, Err: errStuck, Hint: "see who has " + path + " open"}
		}
		time.Sleep(guardPause)
	}
}

// openGuard makes the file if there is none. O_CREAT comes only when it is
// needed: fs.protected_regular forbids it for the files of other users in a
// sticky directory (proc(5)).
func openGuard(path string) (fd int, err error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	for range 2 {
		if fd, err = unix.Open(path, flags, 0); err != unix.ENOENT {
			break
		}
		if fd, err = unix.Open(path, flags|unix.O_CREAT, 0o666); err != unix.EACCES {
			break
		}
	}
	if err == nil {
		return fd, nil
	}
	e := &Error{Op: "open", Address: path, Err: err}
	switch err {
	case unix.ENOENT:
		e.Hint = "the directory must be there"
	case unix.EACCES, unix.EPERM, unix.EROFS:
		e.Hint = "newcomers lock this file while they look for a socket that was left behind; to make it takes the right to write the directory"
	}
	return -1, e
}

// same reports whether the path still leads to the file of fd.
func same(path string, fd int) bool {
	var now, then unix.Stat_t
	return unix.Fstat(fd, &then) == nil && unix.Lstat(path, &now) == nil && now.Ino == then.Ino && now.Dev == then.Dev
}

// drop gives the slot back, and removes the file if it is still ours and that
// takes no waiting for anybody; else the next one does.
func (f *socketFile) drop(name string, ours *unix.Stat_t, fd int) error {
	defer unix.Close(fd)
	err := quiet(name, fd)
	guard, guardErr := f.guard(context.Background(), dropWait)
	if guardErr != nil {
		return err
	}
	defer unix.Close(guard)
	var st unix.Stat_t
	if unix.Lstat(name, &st) == nil && st.Ino == ours.Ino && st.Dev == ours.Dev {
		_ = unix.Unlink(name)
	}
	return err
}

// sockets implements space.
func (f *socketFile) sockets(n int) map[int]string {
	all := list()
	found := map[int]string{}
	for unit := range n {
		if inode := listener(all, unitName(f.path, unit)); inode != "" {
			found[unit] = inode
		}
	}
	return found
}
