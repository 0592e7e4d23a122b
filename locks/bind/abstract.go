package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// abstract is a name without a file.
type abstract struct{ name string } // without the @

// generations is how many names a unit has. The kernel lets nobody unbind a
// socket: what a command has left behind keeps the name, by the descriptor that
// it inherited, when the slot has long been given back. The next holder takes
// the next name then.
const generations = 10

// NewAbstract takes the name, of one byte or more.
func NewAbstract(name string) (*Store, error) {
	switch {
	case name == "":
		return nil, errors.New("name: want one, as in bind://@job")
	case strings.ContainsRune(name, 0):
		return nil, errors.New("name: contains a zero byte")
	case len(generationName(name, 0, 1)) > longestName:
		return nil, fmt.Errorf("name: is %d bytes long, at most %d fit", len(name), longestName-len(generationName("", 0, 1)))
	}
	return &Store{space: &abstract{name}}, nil
}

// generationName is the name of a unit's socket. No other unit can have it: names
// of users contain no zero byte.
func generationName(name string, unit, generation int) string {
	name = "@" + unitName(name, unit)
	if generation > 0 {
		name += "\x00" + string(rune('0'+generation))
	}
	return name
}

func (a *abstract) url() string { return "bind://@" + escape(a.name) }

func (a *abstract) units() int { return unitsFor(longestName - len(generationName(a.name, 0, 1))) }

// take implements space. A name that is bound and listens is held. One that is
// bound and listens but refuses connections was given back, and the next one is
// tried; one that does not listen is about to, or another tool's.
//
// So two may bind different names of the same unit at the same time. Each
// listens before it looks at the other names, so at least one of the two sees
// the other one; who sees somebody at an earlier name goes, who sees somebody at
// a later one gives that one the time to go.
func (a *abstract) take(_ context.Context, unit int) (*held, error) {
	for g := range generations {
		name := generationName(a.name, unit, g)
		fd, err := listenAt(name)
		if err == errTaken {
			left, err := a.leftBehind(name)
			if err != nil {
				return nil, err
			}
			if !left {
				return nil, errTaken
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := a.alone(unit, g); err != nil {
			_ = quiet(name, fd)
			unix.Close(fd)
			return nil, err
		}
		return &held{fd, func(fd int) error {
			err := quiet(name, fd)
			unix.Close(fd)
			return err
		}}, nil
	}
	return nil, errTaken
}

// leftBehind reports whether the socket of a name was given back and lives on.
func (a *abstract) leftBehind(name string) (bool, error) {
	state, err := look(name)
	if err != nil || state != silent {
		return false, err
	}
	return slices.ContainsFunc(list()[listed(name)], func(s socket) bool { return s.listens }), nil
}

// alone makes sure that nobody listens at another name of the unit than ours.
func (a *abstract) alone(unit, ours int) error {
	for tries := 0; ; tries++ {
		rival := false
		for g := range generations {
			if g == ours {
				continue
			}
			state, err := look(generationName(a.name, unit, g))
			if err != nil {
				return err
			}
			if state == alive {
				if g < ours || tries == maxTries {
					return errTaken
				}
				rival = true
			}
		}
		if !rival {
			return nil
		}
		standBack()
	}
}

// sockets implements space.
func (a *abstract) sockets(n int) map[int]string {
	all := list()
	found := map[int]string{}
	for unit := range n {
		for g := range generations {
			if inode := listener(all, generationName(a.name, unit, g)); inode != "" {
				found[unit] = inode
			}
		}
	}
	return found
}
