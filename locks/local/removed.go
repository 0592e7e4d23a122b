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
// every holder has read locks on bytes that stand for the place of the file. Before the first
// admission from a new file, golock looks for such a lock on another file of the same device. That
// file was removed and is still in use.

// pathLocks returns these bytes. One stands for the place of the directory, because a directory
// that was removed and made again is at the same place. One stands for the directory itself, in
// which the file may be made again.
//
// The path does not identify the place. Two containers have different directories at the same path,
// and a directory has several paths by mounts and links. The place is the parent directory and the
// name in it. A directory that is mounted by itself shows no parent, so its place is its path in
// its file system.
type pathLocks [2]int64

func (d *directory) pathLocks(name string) pathLocks {
	place := d.mountedPlace()
	if !d.isMountRoot() {
		place = d.placeInParent()
	}
	itself := fmt.Sprintf("%x:%d", d.stat.Dev, d.stat.Ino)
	return pathLocks{pathByte(place, name), pathByte(itself, name)}
}

// placesElsewhere returns the bytes that other golocks may have locked for a file that was removed
// here. They are the bytes of pathLocks, and the byte by which a container knows the directory if
// it is mounted there.
func (d *directory) placesElsewhere(name string) []int64 {
	at := d.pathLocks(name)
	return []int64{at[0], at[1], pathByte(d.mountedPlace(), name)}
}

func pathByte(place, name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(place + "/" + fileName(name)))
	return pathBase + int64(h.Sum64()>>4)
}

// isMountRoot reports whether the directory is the root of a mount. Then its ".." is the directory
// on which it is mounted.
func (d *directory) isMountRoot() bool {
	var st unix.Statx_t
	if unix.Statx(d.fd, "", unix.AT_EMPTY_PATH, 0, &st) == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	m, err := locks.MountOf(d.path) // for kernels before Linux 5.8
	return err == nil && m.Point == d.path
}

func (d *directory) placeInParent() string {
	var parent unix.Stat_t
	if unix.Fstatat(d.fd, "..", &parent, 0) != nil {
		return d.path
	}
	return fmt.Sprintf("%x:%d/%s", parent.Dev, parent.Ino, filepath.Base(d.path))
}

// mountedPlace returns the path of the directory in its file system, which is the same in all
// mounts and mount namespaces. In a chroot whose root is not a mount that path is not known, and
// mountedPlace returns the path of the directory.
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

// pathMark stands for this file under this path. A copy of the file, or a file that was moved here,
// has another mark and is checked anew.
func (p *place) pathMark() uint64 { return uint64(p.pathLocks[0]) ^ p.file.stat.Ino }

// whyRemoved is the reason for which a newcomer has to wait for such a holder.
const whyRemoved = "its lock file was removed while it was held, and that holder is still there"

// lockedElsewhere reports whether another file than own, on the same device, has a lock on one of
// the bytes. Without /proc it reports false. It reads a long list twice, because the list may lack
// a lock.
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

// kernelName returns the name of the file of f in the kernel's lists. It is read from the entry of
// our own gate, because on overlayfs and btrfs stat(2) shows another device.
func (f *lockFile) kernelName() string {
	gate := strconv.FormatInt(gateByte, 10)
	for _, l := range procfs.FDLocks(0, f.fd) {
		if l.Start == gate {
			return l.File
		}
	}
	return ""
}
