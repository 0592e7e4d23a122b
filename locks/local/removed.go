package local

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// There must not be two holders when a lock file is removed while a process holds its lock. So
// every holder has read locks on the path bytes, which stand for the location of the file. Before
// the first grant in a new file, golock looks for such a lock on another file of the same device.
// That file was removed and is still in use.

// pathBytes are the bytes that a holder of a name locks for reading. The first one stands for the
// location of the directory: a directory that was removed and made again has the same location. The
// second one stands for the directory itself, in which only the file was made again.
//
// The path does not identify the location. Two containers have different directories at the same
// path, and a directory has several paths by mounts and links. The location is the parent directory
// and the name in it. A directory that is mounted by itself shows no parent, so its location is its
// path in its file system.
type pathBytes [2]int64

func (d *directory) pathBytes(name string) pathBytes {
	location := d.locationInFileSystem()
	if !d.isMountRoot() {
		location = d.locationInParent()
	}
	itself := fmt.Sprintf("%x:%d", d.stat.Dev, d.stat.Ino)
	return pathBytes{pathByte(location, name), pathByte(itself, name)}
}

// pathBytesOfAll returns the bytes that golocks may have locked for a file that was removed from this
// directory: the pathBytes of this process, and the byte for the location that the directory has in a
// container into which it is mounted.
func (d *directory) pathBytesOfAll(name string) []int64 {
	at := d.pathBytes(name)
	return []int64{at[0], at[1], pathByte(d.locationInFileSystem(), name)}
}

func pathByte(location, name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(location + "/" + fileName(name)))
	return pathBase + int64(h.Sum64()>>4)
}

// isMountRoot reports whether the directory is the root of a mount. Then its ".." is the directory
// on which it is mounted.
func (d *directory) isMountRoot() bool {
	var st unix.Statx_t
	if unix.Statx(d.fd, "", unix.AT_EMPTY_PATH, 0, &st) == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	m, err := locks.MountOf(d.path) // statx(2) tells the root of a mount since Linux 5.8
	return err == nil && m.Point == d.path
}

func (d *directory) locationInParent() string {
	var parent unix.Stat_t
	if unix.Fstatat(d.fd, "..", &parent, 0) != nil {
		return d.path
	}
	return fmt.Sprintf("%x:%d/%s", parent.Dev, parent.Ino, filepath.Base(d.path))
}

// locationInFileSystem returns the path of the directory in its file system, which is the same in all
// mounts and mount namespaces. In a chroot whose root is not a mount that path is not known, and
// locationInFileSystem returns the path of the directory.
func (d *directory) locationInFileSystem() string {
	m, err := locks.MountOf(d.path)
	if err != nil {
		return d.path
	}
	below, isBelow := strings.CutPrefix(d.path, strings.TrimSuffix(m.Point, "/"))
	if !isBelow {
		return d.path
	}
	return "in its file system " + strings.TrimSuffix(m.Root, "/") + below
}

// pathMark stands for this file under this path. A copy of the file, or a file that was moved here,
// has another mark and is checked anew.
func (e *entry) pathMark() uint64 { return uint64(e.pathBytes[0]) ^ e.file.stat.Ino }

// isLockedElsewhere reports whether another file than the given one, on the same device, has a lock on one of
// the bytes. file is a name as kernelName returns it. Without /proc isLockedElsewhere reports false. It
// reads a long list four times, because each reading may lack a lock.
func isLockedElsewhere(file string, bytes []int64, list func() []procfs.Lock) bool {
	device := file[:strings.LastIndexByte(file, ':')+1]
	var starts []string
	for _, b := range bytes {
		starts = append(starts, strconv.FormatInt(b, 10))
	}
	isElsewhere := func(l procfs.Lock) bool {
		isOther := l.File != file && strings.HasPrefix(l.File, device)
		return isOther && l.Kind == "OFDLCK" && !l.Waiting && slices.Contains(starts, l.Start)
	}
	for range 4 {
		all := list()
		if slices.ContainsFunc(all, isElsewhere) {
			return true
		}
		if len(all) < procfs.WholeList {
			break
		}
	}
	return false
}

// kernelName returns the name of the file in the kernel's lists of locks. It reads the line of the
// gate, which this process has locked, because on overlayfs and btrfs stat(2) shows another device.
func (f *lockFile) kernelName() string {
	gate := strconv.FormatInt(gateByte, 10)
	for _, l := range procfs.FDLocks(0, f.fd) {
		if l.Start == gate {
			return l.File
		}
	}
	return ""
}
