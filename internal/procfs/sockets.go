package procfs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// SocketsOf returns the inodes of the sockets that a process has open.
func SocketsOf(pid int) (inodes []uint64, err error) {
	fds, err := FDs(pid)
	for _, fd := range fds {
		link, _ := os.Readlink(Dir(pid) + "/fd/" + strconv.Itoa(fd))
		if rest, ok := strings.CutPrefix(link, "socket:["); ok {
			inode, _ := strconv.ParseUint(strings.TrimSuffix(rest, "]"), 10, 64)
			inodes = append(inodes, inode)
		}
	}
	slices.Sort(inodes)
	return slices.Compact(inodes), err
}

// TCPName writes an address as the kernel lists it in /proc/net/tcp: words of 32 bits in the byte
// order of the machine, a colon, the port.
func TCPName(address netip.AddrPort) string {
	var b strings.Builder
	for bytes := address.Addr().AsSlice(); len(bytes) > 0; bytes = bytes[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(bytes))
	}
	fmt.Fprintf(&b, ":%04X", address.Port())
	return b.String()
}

// TCPListeners returns the inodes of the listening TCP sockets of this network namespace. Its keys
// are addresses as [TCPName] writes them.
func TCPListeners() map[string]uint64 {
	const listening = "0A" // TCP_LISTEN
	found := map[string]uint64{}
	for _, list := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, _ := Read(list, 1<<14)
		for line := range strings.Lines(text) {
			if field := strings.Fields(line); len(field) > 9 && field[3] == listening {
				found[field[1]], _ = strconv.ParseUint(field[9], 10, 64)
			}
		}
	}
	return found
}

// UnixListeners returns the inodes of the listening unix sockets of this network namespace, by name.
// An abstract name begins with @. If several sockets have a name, the newest counts. A name with a
// line feed can forge a line of the kernel's list.
func UnixListeners() map[string]uint64 {
	const listening = 0x10000 // __SO_ACCEPTCON
	found := map[string]uint64{}
	text, _ := Read("/proc/self/net/unix", 1<<14)
	for line := range strings.Lines(text) {
		// Num RefCount Protocol Flags Type St Inode Path; a path may contain blanks
		field := strings.Fields(line)
		if len(field) < 8 {
			continue
		}
		flags, _ := strconv.ParseUint(field[3], 16, 64)
		inode, err := strconv.ParseUint(field[6], 10, 64)
		_, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "+field[6]+" ")
		if err == nil && flags&listening != 0 {
			found[name] = max(found[name], inode)
		}
	}
	return found
}
