package local

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"golock/internal/procfs"
)

// There must not be two holders when a lock file is removed under a live one. So every
// holder has read locks on bytes that stand for the file's place. Before the first admission
// from a new file golock looks for such a lock in another file of the same device: that
// file was removed and is still in use.

// pathLocks are these bytes. One stands for the path, which may come to lead to another
// directory, one for the directory, which may have other paths (bind mounts,
// containers).
type pathLocks [2]int64

func (d *directory) pathLocks(name string) pathLocks {
	at := func(place string) int64 {
		h := fnv.New64a()
		h.Write([]byte(place + "/" + fileName(name)))
		return pathBase + int64(h.Sum64()>>4)
	}
	return pathLocks{at(d.path), at(strconv.FormatUint(d.stat.Ino, 10))}
}

// pathMark stands for this file under this path: a copy of the file, or one that was
// moved here, has to be checked anew.
func (p *place) pathMark() uint64 { return uint64(p.pathLocks[0]) ^ p.file.stat.Ino }

// whyRemoved tells a newcomer of such a holder.
const whyRemoved = "its lock file was removed while it was held, and that holder is still there"

// lockedElsewhere looks for a lock on one of the bytes in another file than own, on the same
// device. Without /proc it sees none. It reads a long list again: a lock may be missing there.
func lockedElsewhere(own string, at pathLocks, list func() []procfs.Lock) bool {
	device := own[:strings.LastIndexByte(own, ':')+1]
	first, second := strconv.FormatInt(at[0], 10), strconv.FormatInt(at[1], 10)
	for range 4 {
		all := list()
		if slices.ContainsFunc(all, func(l procfs.Lock) bool {
			return l.Kind == "OFDLCK" && !l.Waiting && (l.Start == first || l.Start == second) &&
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
