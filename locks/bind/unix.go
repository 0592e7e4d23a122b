package bind

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// longestName is how many bytes of an address a unix socket can have (unix(7)),
// with the @ that stands for the first byte of an abstract one.
const longestName = 107

// unitName is the name of a unit: unit 0 has the name itself, the others get
// their number, NAME.1, NAME.2.
func unitName(name string, unit int) string {
	if unit == 0 {
		return name
	}
	return name + "." + strconv.Itoa(unit)
}

// unitsFor is how many units have names that fit, if room bytes are left.
func unitsFor(room int) int {
	switch {
	case room < 2:
		return 1
	case room == 2:
		return 10
	case room == 3:
		return 100
	}
	return 1000
}

// presence is what a connection attempt tells of an address.
type presence int

const (
	absent presence = iota
	silent          // there is a socket, or only its file, and nobody listens
	alive           // somebody listens
)

// look asks whether somebody listens at an address. What that leaves in the
// listener's queue is bounded, and a full one is an answer too.
func look(name string) (presence, error) {
	fd, err := newSocket(unix.AF_UNIX)
	if err != nil {
		return absent, &Error{Op: "socket", Address: name, Err: err}
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err {
	case nil, unix.EAGAIN, unix.EPROTOTYPE, unix.EINTR:
		return alive, nil // EPROTOTYPE: a socket of another kind
	case unix.ECONNREFUSED:
		return silent, nil
	case unix.ENOENT:
		return absent, nil
	case unix.EACCES, unix.EPERM:
		return absent, &Error{Op: "connect", Address: name, Err: err, Hint: "the socket belongs to another user: whether somebody listens cannot be seen"}
	default:
		return absent, &Error{Op: "connect", Address: name, Err: err}
	}
}

// listenAt binds and listens. errTaken: there is something of that name.
func listenAt(name string) (fd int, err error) {
	if fd, err = newSocket(unix.AF_UNIX); err != nil {
		return -1, &Error{Op: "socket", Address: name, Err: err}
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	switch err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err {
	case nil:
	case unix.EADDRINUSE:
		return fd, errTaken
	default:
		e := &Error{Op: "bind", Address: name, Err: err}
		switch err {
		case unix.ENOENT:
			e.Hint = "the directory must be there"
		case unix.EACCES, unix.EPERM, unix.EROFS:
			e.Hint = "to make a socket takes the right to write the directory"
		}
		return fd, e
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return fd, &Error{Op: "listen", Address: name, Err: err}
	}
	return fd, nil
}

// quiet makes a socket refuse connections from now on, whoever has it open.
func quiet(name string, fd int) error {
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
		return &Error{Op: "shutdown", Address: name, Err: err}
	}
	return nil
}

// socket is a line of the kernel's list.
type socket struct {
	inode   uint64
	listens bool // or did, when it was made quiet
	idle    bool // is bound, and neither listens nor is an end of a connection
}

// list gives the bound sockets of this network namespace by their names, in
// which the kernel writes @ for a zero byte (proc(5), /proc/net/unix).
func list() map[string][]socket {
	const (
		acceptsConnections = 0x10000 // __SO_ACCEPTCON
		unconnected        = "01"    // SS_UNCONNECTED
	)
	text, _ := os.ReadFile("/proc/self/net/unix")
	found := map[string][]socket{}
	for line := range strings.Lines(string(text)) {
		// Num RefCount Protocol Flags Type St Inode Path; a path may contain blanks
		field := strings.Fields(line)
		if len(field) < 8 {
			continue
		}
		flags, _ := strconv.ParseUint(field[3], 16, 64)
		inode, err := strconv.ParseUint(field[6], 10, 64)
		_, name, ok := strings.Cut(line, " "+field[6]+" ")
		if err != nil || !ok {
			continue
		}
		name = strings.TrimSuffix(name, "\n")
		listens := flags&acceptsConnections != 0
		found[name] = append(found[name], socket{inode, listens, !listens && field[5] == unconnected})
	}
	return found
}

// listed is a name as the list has it.
func listed(name string) string { return strings.ReplaceAll(name, "\x00", "@") }

// listener is the inode of the socket that somebody listens at, or "". Those of
// the same name that were made quiet are older.
func listener(all map[string][]socket, name string) string {
	var inode uint64
	for _, s := range all[listed(name)] {
		if s.listens {
			inode = max(inode, s.inode)
		}
	}
	if inode == 0 {
		return ""
	}
	if state, err := look(name); err != nil || state != alive {
		return ""
	}
	return strconv.FormatUint(inode, 10)
}
