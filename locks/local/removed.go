package local

import (
	"hash/fnv"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A lock file that somebody removes under a live holder must not make two
// holders. Every holder therefore keeps a read lock on a byte that stands for
// the file's path. Who makes a file looks, before the first admission from it,
// whether that byte is locked in another file of the same device: then the
// path had a file that was removed and is still in use.

// pathByte is that byte.
func (d *directory) pathByte(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte(d.path + "/" + fileName(name)))
	return pathBase + int64(h.Sum64()>>4)
}

// settledMark stands for this file under this path: a copy of the file, or one
// that was moved here, has to be settled anew.
func (p *place) settledMark() uint64 { return uint64(p.pathByte) ^ p.table.stat.Ino }

// heldElsewhere looks in /proc/locks (proc(5)) for a holder of the same path
// in another file than f. Where there is no /proc it sees none. The caller is
// inside the gate.
func (f *lockFile) heldElsewhere(pathByte int64) bool {
	return lockedElsewhere(f.kernelName(), pathByte, func() (string, int) { return readPieces("/proc/locks") })
}

// lockedElsewhere looks for a lock on pathByte in another file than own, on the
// same device. The kernel gives the list in pieces. When a lock ends between two
// of them, the next piece begins one line too far on, so a list that came in
// pieces and has no such line is asked for again.
func lockedElsewhere(own string, pathByte int64, list func() (text string, pieces int)) bool {
	device := own[:strings.LastIndexByte(own, ':')+1]
	at := strconv.FormatInt(pathByte, 10)
	for range 4 {
		text, pieces := list()
		for line := range strings.Lines(text) {
			inode, start := lockLine(line)
			if start == at && inode != own && strings.HasPrefix(inode, device) {
				return true
			}
		}
		if pieces < 2 && len(text) < onePiece {
			break
		}
	}
	return false
}

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
