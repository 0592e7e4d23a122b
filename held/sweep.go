package held

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// youngest is how old a socket is that may be removed, at least: one that has
// just been made does not answer yet.
const youngest = 10 * time.Second

// Sweep removes the sockets of holders that were killed, if they are at least
// olderThan old, and says how many those were.
func Sweep(dir string, olderThan time.Duration) (removed int, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return 0, nil
		}
		return 0, err
	}
	for _, f := range files {
		if !isSocketName(f.Name()) {
			continue
		}
		info, err := f.Info()
		if err != nil || info.Mode()&os.ModeSocket == 0 || time.Since(info.ModTime()) < max(olderThan, youngest) {
			continue
		}
		path := filepath.Join(dir, f.Name())
		if !refuses(path) {
			continue
		}
		if err := os.Remove(path); err == nil {
			removed++
		} else if !os.IsNotExist(err) {
			return removed, err
		}
	}
	return removed, nil
}

// isSocketName reports whether a directory entry is named like one of ours.
func isSocketName(name string) bool {
	id, ok := strings.CutSuffix(name, suffix)
	if !ok || len(id) != 65 || id[32] != '-' {
		return false
	}
	_, err := hex.DecodeString(id[:32] + id[33:])
	return err == nil
}

// refuses reports whether nobody listens any more. One that listens keeps the
// socket open for as long as it lives, so a refusal is for ever.
func refuses(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == unix.ECONNREFUSED
}
