// Package userns translates the IDs of users in a user namespace (user_namespaces(7)). Under
// unshare -r, bwrap and flatpak, root of the host has no ID of its own, and its files show the
// overflow ID.
package userns

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// usualOverflow is the kernel's default overflow ID.
const usualOverflow = 65534

// Root returns the user ID that files of the host's root show in this user namespace: 0 if the namespace maps
// root, otherwise the overflow ID, which all users without a mapping share. So a file with the overflow ID
// belongs to root only if it is in a directory where root alone can put files.
func Root() (uid uint32, isMapped bool) {
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

// overflowID returns the ID that stands for users without a mapping (proc(5)).
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

// StandsForOthers reports whether the kernel shows all users that this namespace does not map as uid.
// Then a check of the user of a peer proves nothing.
func StandsForOthers(uid int) bool {
	const initial = 0xEFFFFFFD // the first user namespace of every Linux (PROC_USER_INIT_INO)
	return uint32(uid) == overflowID() && procfs.Namespace("user") != initial
}

// Unknown is the result of [RealUser] if it cannot be told.
const Unknown = -1

// RealUser returns the ID that uid has outside of a user namespace that does not map root (unshare
// -r, bwrap). Such a namespace uses the files of the host, so the user of the host counts. Elsewhere,
// as in a container with a root of its own, RealUser returns uid.
//
// It returns Unknown for a user without a mapping (unshare -U). It also returns Unknown in a namespace inside
// another one, which bwrap makes for --dev: its map leads only to the outer of the two, where the user is root.
func RealUser(uid int) int {
	if _, isMapped := Root(); isMapped {
		return uid
	}
	text, err := procfs.Read("/proc/self/uid_map", 512)
	if err != nil {
		return Unknown
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
		distance := int64(uid) - inside
		if distance < 0 || distance >= length {
			continue
		}
		real := outside + distance
		if real == 0 { // not root of the host, which this namespace does not map
			return Unknown
		}
		return int(real)
	}
	return Unknown
}
