package locks

import (
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

// MountOf finds the mount of a file, by the number that the kernel tells of a descriptor.
func MountOf(path string) (Mount, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Mount{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return Mount{}, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Mount{}, err
	}
	for line := range strings.Lines(string(mounts)) {
		if m, id := readMount(line); id != "" && strings.Contains(string(info), "mnt_id:\t"+id+"\n") {
			return m, nil
		}
	}
	return Mount{}, fmt.Errorf("%s: its mount is not listed", path)
}

// readMount reads a line as
//
//	36 35 98:0 /root /mount/point options [tag ...] - type source options
func readMount(line string) (m Mount, id string) {
	before, after, _ := strings.Cut(strings.TrimRight(line, "\n"), " - ")
	field, rest := strings.Fields(before), strings.Fields(after)
	if len(field) < 6 || len(rest) < 3 {
		return m, ""
	}
	return Mount{
		Root: unescape(field[3]), Point: unescape(field[4]), Type: rest[0], Source: rest[1], Options: field[5] + "," + rest[2],
	}, field[0]
}

// unescape restores the characters that the kernel writes in octal there: blanks, tabs, newlines and
// backslashes.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(path)
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
