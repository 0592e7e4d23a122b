package held

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// minAge is the least age of a socket that is removed: a new one does not listen yet.
const minAge = 10 * time.Second

// Sweep removes the sockets of killed holders that are at least olderThan old, and counts them.
func Sweep(dir string, olderThan time.Duration) (removed int, err error) {
	digits := strings.Repeat("[0-9a-f]", 32)
	names, err := fs.Glob(os.DirFS(dir), digits+"-"+digits+suffix) // the name of dir is no pattern
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			continue
		}
		isNew := time.Since(info.ModTime()) < max(olderThan, minAge)
		if isNew || !isAbandoned(path) {
			continue
		}
		err = os.Remove(path)
		switch {
		case err == nil:
			removed++
		case !os.IsNotExist(err):
			return removed, err
		}
	}
	return removed, err
}

// isAbandoned reports whether nobody listens any more. A holder keeps its socket open for as long as
// it lives, so a refused connection is final.
func isAbandoned(path string) bool {
	fd, err := newSocket(path, unix.Connect)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.ECONNREFUSED)
}
