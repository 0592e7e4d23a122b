package locks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is where a file lies, as /proc/self/mountinfo tells it (proc(5)).
type Mount struct {
	Root    string // the part of the file system that is mounted
	Point   string // where it is mounted
	Type    string // the type of the file system
	Source  string
	Options string // the options of the mount and of the file system
	Device  string // the device of the file system, as MAJOR:MINOR

	id, parent string
}

// MountOf finds the mount of a file, by the mnt_id of a descriptor in /proc/self/fdinfo (proc(5)).
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
		if m := readMount(line); m.id != "" && strings.Contains(string(info), "mnt_id:\t"+m.id+"\n") {
			return m, nil
		}
	}
	return Mount{}, fmt.Errorf("%s: its mount is not listed", path)
}

// readMount reads a line as
//
//	36 35 98:0 /root /mount/point options [tag ...] - type source options
func readMount(line string) (m Mount) {
	before, after, _ := strings.Cut(strings.TrimRight(line, "\n"), " - ")
	field, rest := strings.Fields(before), strings.Fields(after)
	if len(field) < 6 || len(rest) < 3 {
		return m
	}
	return Mount{
		Root: unescape(field[3]), Point: unescape(field[4]), Type: rest[0], Source: rest[1],
		Options: field[5] + "," + rest[2], Device: field[2], id: field[0], parent: field[1],
	}
}

// Mounts are the mounts of a process, in the order of /proc/PID/mountinfo, which every user may read.
type Mounts []Mount

// ParseMounts reads the text of /proc/PID/mountinfo.
func ParseMounts(text string) (all Mounts) {
	for line := range strings.Lines(text) {
		if m := readMount(line); m.id != "" {
			all = append(all, m)
		}
	}
	return all
}

// Where returns the device to which a path leads, and the path in that file system. The path must not
// contain symbolic links. Where returns "" if the root is not among the mounts, as in a chroot.
func (all Mounts) Where(path string) string {
	at, found := all.root()
	if !found {
		return ""
	}
	for found {
		var next Mount
		next, found = all.below(at, path)
		if found {
			at = next
		}
	}
	return at.Device + " " + filepath.Join("/", at.Root, strings.TrimPrefix(path, at.Point))
}

// root returns the mount at / whose parent is not listed.
func (all Mounts) root() (Mount, bool) {
	isListed := make(map[string]bool, len(all))
	for _, m := range all {
		isListed[m.id] = true
	}
	for _, m := range all {
		if m.Point == "/" && (m.parent == m.id || !isListed[m.parent]) {
			return m, true
		}
	}
	return Mount{}, false
}

// below returns the first mount on the way from the root of a mount to a path. It ignores mounts that
// others hide.
func (all Mounts) below(at Mount, path string) (first Mount, found bool) {
	for _, m := range all {
		if m.parent != at.id || m.id == at.id {
			continue
		}
		isOnWay := m.Point == "/" || path == m.Point || strings.HasPrefix(path, m.Point+"/")
		if isOnWay && (!found || len(m.Point) <= len(first.Point)) {
			first, found = m, true
		}
	}
	return first, found
}

// unescape restores the characters that the kernel writes in octal in mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(path)
}

// Option returns the value of an option, which is empty if the option has none, and whether the mount
// has the option.
func (m Mount) Option(name string) (value string, isSet bool) {
	for option := range strings.SplitSeq(m.Options, ",") {
		if key, value, _ := strings.Cut(option, "="); key == name {
			return value, true
		}
	}
	return "", false
}
