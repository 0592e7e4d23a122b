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

// There must not be two holders when a lock file is removed under a live one. So every
// holder has read locks on bytes that stand for the file's place. Before the first admission
// from a new file golock looks for such a lock in another file of the same device: that
// file was removed and is still in use.

// pathLocks are these bytes. One stands for the place of the directory: a directory that was removed and
// made again is at the same place. One stands for the directory, in which the file may be made again.
//
// The path is no place. Two containers have different directories at the same path; one directory has several
// paths by mounts and links. The place is the parent directory and the name in it. A directory that is
// mounted by itself shows no parent: its place is its path in its file system.
type pathLocks [2]int64

func (d *directory) pathLocks(name string) pathLocks {
	place := d.mountedPlace()
	if !d.isMountRoot() {
		place = d.placeInParent()
	}
	itself := fmt.Sprintf("%x:%d", d.stat.Dev, d.stat.Ino)
	return pathLocks{pathByte(place, name), pathByte(itself, name)}
}

// placesElsewhere are the bytes of other golocks that may hold the lock of a file that was removed here: those
// of pathLocks, and the one by which a container knows the directory if it is mounted there.
func (d *directory) placesElsewhere(name string) []int64 {
	at := d.pathLocks(name)
	return []int64{at[0], at[1], pathByte(d.mountedPlace(), name)}
}

func pathByte(place, name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(place + "/" + fileName(name)))
	return pathBase + int64(h.Sum64()>>4)
}

// isMountRoot reports whether the directory is the root of a mount: its ".." then is where it is mounted.
func (d *directory) isMountRoot() bool {
	var st unix.Statx_t
	if unix.Statx(d.fd, "", unix.AT_EMPTY_PATH, 0, &st) == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	m, err := locks.MountOf(d.path) // before Linux 5.8
	return err == nil && m.Point == d.path
}

func (d *directory) placeInParent() string {
	var parent unix.Stat_t
	if unix.Fstatat(d.fd, "..", &parent, 0) != nil {
		return d.path
	}
	return fmt.Sprintf("%x:%d/%s", parent.Dev, parent.Ino, filepath.Base(d.path))
}

// mountedPlace is the path of the directory in its file system, which is the same in all mounts and mount
// namespaces. In a chroot that is no mount, it is not known: then it is the path.
func (d *directory) mountedPlace() string {
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

// pathMark stands for this file under this path: a copy of the file, or one that was
// moved here, has to be checked anew.
func (p *place) pathMark() uint64 { return uint64(p.pathLocks[0]) ^ p.file.stat.Ino }

// whyRemoved tells a newcomer of such a holder.
const whyRemoved = "its lock file was removed while it was held, and that holder is still there"

// lockedElsewhere looks for a lock on one of the bytes in another file than own, on the same
// device. Without /proc it sees none. It reads a long list again: a lock may be missing there.
func lockedElsewhere(own string, at []int64, list func() []procfs.Lock) bool {
	device := own[:strings.LastIndexByte(own, ':')+1]
	var starts []string
	for _, b := range at {
		starts = append(starts, strconv.FormatInt(b, 10))
	}
	for range 4 {
		all := list()
		if slices.ContainsFunc(all, func(l procfs.Lock) bool {
			return l.Kind == "OFDLCK" && !l.Waiting && slices.Contains(starts, l.Start) &&
				l.File != own && strings.HasPrefix(l.File, device)
		}) {
			return true
		}
		if len(all) < procfs.WholeList {
			break
		}
	}
	return false
}

// kernelName is what the kernel's lists call the file of f. It is read from the entry
// of our own gate: on overlayfs and btrfs the device of stat(2) is another.
func (f *lockFile) kernelName() string {
	gate := strconv.FormatInt(gateByte, 10)
	for _, l := range procfs.FDLocks(0, f.fd) {
		if l.Start == gate {
			return l.File
		}
	}
	return ""
}
