package local

import (
	"hash/fnv"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A lock file that somebody removes under a live holder must not make two
// holders. Every holder therefore keeps read locks on bytes that stand for the
// file's place. Who makes a file looks, before the first admission from it,
// whether one of them is locked in another file of the same device: then there
// was a file in its place that was removed and is still in use.

// traces are these bytes. One stands for the path, which may come to lead to
// another directory; one for the directory, which may have other paths (bind
// mounts, containers).
type traces [2]int64

func (d *directory) traces(name string) traces {
	byPath, byDirectory := fnv.New64a(), fnv.New64a()
	base := "/" + fileName(name)
	byPath.Write([]byte(d.path + base))
	byDirectory.Write([]byte(strconv.FormatUint(d.ino, 10) + base))
	return traces{pathBase + int64(byPath.Sum64()>>4), pathBase + int64(byDirectory.Sum64()>>4)}
}

// settledMark stands for this file under this path: a copy of the file, or one
// that was moved here, has to be settled anew.
func (p *place) settledMark() uint64 { return uint64(p.traces[0]) ^ p.table.stat.Ino }

// heldElsewhere looks in /proc/locks (proc(5)) for a holder of the same place
// in another file than f. Where there is no /proc it sees none. The caller is
// inside the gate.
func (f *lockFile) heldElsewhere(at traces) bool {
	return lockedElsewhere(f.kernelName(), at, func() (string, int) { return readPieces("/proc/locks") })
}

// lockedElsewhere looks for a lock on one of the bytes in another file than own, on the
// same device. The kernel gives the list in pieces. When a lock ends between two
// of them, the next piece begins one line too far on, so a list that came in
// pieces and has no such line is asked for again.
func lockedElsewhere(own string, at traces, list func() (text string, pieces int)) bool {
	device := own[:strings.LastIndexByte(own, ':')+1]
	first, second := strconv.FormatInt(at[0], 10), strconv.FormatInt(at[1], 10)
	for range 4 {
		text, pieces := list()
		for line := range strings.Lines(text) {
			inode, start := lockLine(line)
			if (start == first || start == second) && inode != own && strings.HasPrefix(inode, device) {
				return true
			}
		}
		if pieces < 2 && len(text) < onePiece {
			break
		}
	}
	return false
}

// whyRemoved is what somebody is told who finds such a holder.
const whyRemoved = "its lock file was removed while it was held, and that holder is still there"

// onePiece is less than the kernel gives at once: a page.
const onePiece = 2048

// kernelName is what the kernel's lists call the file of f, MAJOR:MINOR:INODE.
// It is read from the entry of our own gate: on overlayfs and btrfs the device
// of stat(2) is another.
func (f *lockFile) kernelName() string {
	text, _ := readPieces("/proc/self/fdinfo/" + strconv.Itoa(f.fd))
	gate := strconv.FormatInt(gateByte, 10)
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "lock:\t")
		if inode, start := lockLine(line); ok && start == gate {
			return inode
		}
	}
	return ""
}

// lockLine picks the file and the first byte out of
// "1: OFDLCK  ADVISORY  READ -1 fe:00:1234 START END". Those who only wait for
// a lock have an arrow before their kind and are passed over.
func lockLine(line string) (inode, start string) {
	field := strings.Fields(line)
	if len(field) < 8 || field[1] != "OFDLCK" {
		return "", ""
	}
	return field[5], field[6]
}

// readPieces reads a file of /proc in as few pieces as the kernel gives it.
func readPieces(path string) (text string, pieces int) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0
	}
	defer unix.Close(fd)
	var all strings.Builder
	piece := make([]byte, 1<<14)
	for {
		n, err := unix.Read(fd, piece)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			return all.String(), pieces
		}
		all.Write(piece[:n])
		pieces++
	}
}
