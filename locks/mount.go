package locks

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is where a file lies, as /proc/self/mountinfo tells it (proc(5)).
type Mount struct {
	Root    string // what of the file system is mounted
	Point   string // where it is mounted
	Type    string // of the file system
	Source  string
	Options string // of the mount and of the file system
}

// MountOf finds the mount of a file: by its number where the kernel tells it, else the
// mount of the device that is nearest to the path.
func MountOf(path string) (Mount, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Mount{}, fmt.Errorf("stat %s: %w", path, err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, err
	}
	var id uint64
	var stx unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &stx) == nil && stx.Mask&unix.STATX_MNT_ID != 0 {
		id = stx.Mnt_id
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	var found Mount
	for line := range bytes.Lines(text) {
		m, number, dev := readMount(string(line))
		switch {
		case id != 0 && number == fmt.Sprint(id):
			return m, nil
		case dev == device && strings.HasPrefix(path, m.Point) && len(m.Point) >= len(found.Point):
			found = m
		}
	}
	if found.Type == "" {
		return found, fmt.Errorf("%s: no mount of the device %s is listed", path, device)
	}
	return found, nil
}

// readMount reads a line as
//
//	36 35 98:0 /root /mount/point options [tag ...] - type source options
func readMount(line string) (m Mount, id, device string) {
	before, after, _ := strings.Cut(strings.TrimRight(line, "\n"), " - ")
	field, rest := strings.Fields(before), strings.Fields(after)
	if len(field) < 6 || len(rest) < 3 {
		return m, "", ""
	}
	return Mount{
		Root: field[3], Point: field[4], Type: rest[0], Source: rest[1], Options: field[5] + "," + rest[2],
	}, field[0], field[2]
}

// Option is the value of an option, or "" with true if it is there without one.
func (m Mount) Option(name string) (value string, there bool) {
	for option := range strings.SplitSeq(m.Options, ",") {
		if key, value, _ := strings.Cut(option, "="); key == name {
			return value, true
		}
	}
	return "", false
}
