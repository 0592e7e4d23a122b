// Package userns knows what a user namespace does to IDs (user_namespaces(7)): in unshare -r, bwrap and
// flatpak root of the host has no ID, and what belongs to root shows the overflow ID.
package userns

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// usualOverflow is the overflow ID where it cannot be read.
const usualOverflow = 65534

// Root is the user ID that files of the host's root have here. mapped reports whether it is 0. If it is not,
// the ID stands for every user that this namespace does not map: only a file in a place where root alone
// can put files is root's then.
func Root() (uid uint32, mapped bool) {
	var st unix.Stat_t
	if unix.Stat("/", &st) != nil || st.Uid == 0 {
		return 0, true
	}
	overflow := overflowID()
	if st.Uid != overflow {
		return 0, true
	}
	return overflow, false
}

// overflowID reads the ID of users without a mapping (proc(5)).
func overflowID() uint32 {
	text, err := procfs.Read("/proc/sys/kernel/overflowuid", 32)
	if err != nil {
		return usualOverflow
	}
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return usualOverflow
	}
	return uint32(id)
}

// StandsForOthers reports whether the kernel shows also other users as uid here: those that this
// namespace does not map. A check of the user of a peer proves nothing then.
func StandsForOthers(uid int) bool {
	const initial = 0xEFFFFFFD // the first user namespace of every Linux (PROC_USER_INIT_INO)
	return uint32(uid) == overflowID() && procfs.Namespace("user") != initial
}

// RealUser gives the ID of the user that uid is on the host, if this is a user namespace that does not map
// root (unshare -r, bwrap): there the host's files are used under a name that means nothing to the
// host. Elsewhere, as in a container with a root of its own, it gives uid.
func RealUser(uid int) int {
	if _, mapped := Root(); mapped {
		return uid
	}
	text, err := procfs.Read("/proc/self/uid_map", 512)
	if err != nil {
		return uid
	}
	for line := range strings.Lines(text) {
		// first ID inside, first ID outside, length
		field := strings.Fields(line)
		if len(field) != 3 {
			continue
		}
		inside, err1 := strconv.ParseInt(field[0], 10, 64)
		outside, err2 := strconv.ParseInt(field[1], 10, 64)
		length, err3 := strconv.ParseInt(field[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		if distance := int64(uid) - inside; distance >= 0 && distance < length {
			return int(outside + distance)
		}
	}
	return uid
}
