package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golock/config"
	"golock/locks"
)

// lsCommand is the grammar of golock ls.
type lsCommand struct {
	Name     *word `arg:"" optional:"" name:"lock"`
	JSON     bool  `name:"json"`
	Watch    bool
	Interval *word
	Store    *word
	Config   *word
}

func (c *lsCommand) run(out *printer) int {
	w, err := c.settle(out)
	if err != nil {
		return out.exit(err)
	}
	defer w.store.Close()
	if c.Watch {
		return w.loop()
	}
	if err := w.once(); err != nil {
		return out.exit(err)
	}
	return 0
}

// settle finds out what is to be shown.
func (c *lsCommand) settle(out *printer) (*watch, error) {
	given := flags{}
	given.text("store", c.Store)
	given.text("config", c.Config)
	w := &watch{json: c.JSON, out: out, interval: defaultInterval}
	if c.Name != nil {
		w.name = string(*c.Name)
		if err := locks.CheckName(w.name); err != nil {
			return nil, usageError{fmt.Errorf("name %q: %w", locks.Printable(w.name, 80), err)}
		}
		given[config.NameKey] = []string{w.name} // its table in the file may name a store
	}
	if c.Interval != nil {
		d, err := config.ParseDuration(string(*c.Interval))
		switch {
		case err != nil:
			return nil, usageError{fmt.Errorf("--interval: %w", err)}
		case !c.Watch:
			return nil, usageError{errors.New("--interval needs --watch")}
		case d < leastInterval:
			return nil, usageError{fmt.Errorf("--interval: %v is too short: at least %v", d, leastInterval)}
		}
		w.interval = d
	}
	// The variable is for run: without a name the user wants to see all.
	v, err := given.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return nil, err
	}
	w.store, err = storeOf(v)
	return w, err
}

// once shows what there is. After a failure that is what was seen before it.
func (w *watch) once() error {
	shown, failed := listOf(context.Background(), w.store, w.name)
	var err error
	if w.json {
		err = printJSON(shown)
	} else if lines := tableOf(shown, screenOf(1).columns); len(lines) > 0 {
		_, err = fmt.Println(strings.Join(lines, "\n"))
	}
	if err != nil {
		return outputError{err}
	}
	return failed
}

// listOf asks a store for the entries of a name, or of all.
func listOf(ctx context.Context, store locks.Store, name string) ([]shownEntry, error) {
	users := userNames{}
	shown := []shownEntry{}
	for e, err := range store.Entries(ctx, name) {
		if err != nil {
			return shown, err
		}
		one := users.show(e)
		if store.Traits().Leased {
			left := e.Expires.Milliseconds()
			one.Expires = &left
		}
		shown = append(shown, one)
	}
	return shown, nil
}

// shownEntry is an entry as users and their programs see it; the names are part
// of the contract.
type shownEntry struct {
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

// userNames remembers the names of users.
type userNames map[int]string

func (names userNames) show(e locks.Entry) shownEntry {
	name, ok := names[e.UID]
	switch {
	case e.User != "":
		name = e.User
	case e.UID < 0:
		name = ""
	case !ok:
		name = strconv.Itoa(e.UID)
		if u, err := user.LookupId(name); err == nil {
			name = u.Username
		}
		names[e.UID] = name
	}
	s := shownEntry{
		Name: e.Name, State: e.State, Slots: e.Slots, Position: e.Position,
		Weight: e.Claim.Weight, Max: e.Claim.Max, Priority: e.Claim.Priority,
		Host: e.Host, PID: e.PID, User: name, Command: e.Command, Since: e.Since.Format(time.RFC3339Nano),
		Fence: e.Fence, Orphaned: e.Orphaned,
	}
	if e.Ref != (locks.Ref{}) { // a plain lock does not know the IDs of its holders
		s.ID = e.Ref.String()
	}
	if e.Since.IsZero() {
		s.Since = ""
	}
	if !e.HeldTill.IsZero() {
		s.HeldTill = e.HeldTill.Format(time.RFC3339Nano)
	}
	s.ended, s.leaving = e.Ended, e.Evicted != ""
	if s.Slots == nil {
		s.Slots = []int{}
	}
	if s.Command == nil {
		s.Command = []string{}
	}
	return s
}

func printJSON(shown []shownEntry) error {
	return writeJSON(os.Stdout, shown, "  ")
}

func slotText(slots []int) string {
	words := make([]string, len(slots))
	for i, s := range slots {
		words[i] = strconv.Itoa(s)
	}
	return strings.Join(words, ",")
}
