package term

import (
	"os/user"
	"strconv"
	"strings"
	"time"

	"golock/locks"
)

// Row is an entry as users and their programs see it. Programs rely on the names.
type Row struct {
	Name     string      `json:"name"`
	ID       string      `json:"id"`
	State    locks.State `json:"state"`
	Slots    []int       `json:"slots"`
	Position int         `json:"position"`
	Weight   int         `json:"weight"`
	Max      int         `json:"max"`
	Priority int         `json:"priority"`
	Host     string      `json:"host"`
	PID      int         `json:"pid"`
	User     string      `json:"user"`
	Command  []string    `json:"command"`
	Since    string      `json:"since"`
	Fence    int64       `json:"fence"`
	Orphaned bool        `json:"orphaned"`
	HeldTill string      `json:"held_until,omitempty"`    // of a hold only
	Expires  *int64      `json:"expires_in_ms,omitempty"` // leased stores only

	ended, leaving bool // for the table
}

// UserName gives the name of a user, or the number of one that is unknown.
func UserName(uid int) (name string, ok bool) {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username, true
	}
	return number, false
}

// Users remembers the names of users.
type Users map[int]string

// Row gives an entry as it is shown. leased: it ends with its lease.
func (names Users) Row(e locks.Entry, leased bool) Row {
	name, ok := names[e.UID]
	switch {
	case e.User != "":
		name = e.User
	case e.UID < 0:
		name = ""
	case !ok:
		name, _ = UserName(e.UID)
		names[e.UID] = name
	}
	s := Row{
		Name: e.Name, State: e.State, Slots: e.Slots, Position: e.Position,
		Weight: e.Claim.Weight, Max: e.Claim.Max, Priority: e.Claim.Priority,
		Host: e.Host, PID: e.PID, User: name, Command: e.Command, Since: e.Since.Format(time.RFC3339Nano),
		Fence: e.Fence, Orphaned: e.Orphaned,
	}
	if e.Ref != (locks.Ref{}) { // a plain lock does not know IDs
		s.ID = e.Ref.String()
	}
	if e.Since.IsZero() {
		s.Since = ""
	}
	if !e.HeldTill.IsZero() {
		s.HeldTill = e.HeldTill.Format(time.RFC3339Nano)
	}
	s.ended, s.leaving = e.Ended, e.Evicted != ""
	if leased {
		left := e.Expires.Milliseconds()
		s.Expires = &left
	}
	if s.Slots == nil {
		s.Slots = []int{}
	}
	if s.Command == nil {
		s.Command = []string{}
	}
	return s
}

func slotText(slots []int) string {
	words := make([]string, len(slots))
	for i, s := range slots {
		words[i] = strconv.Itoa(s)
	}
	return strings.Join(words, ",")
}
