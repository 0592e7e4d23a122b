package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golock/config"
	"golock/locks"
)

// lsCommand is the grammar of golock ls.
type lsCommand struct {
	Name   *word `arg:"" optional:"" name:"lock"`
	JSON   bool  `name:"json"`
	Store  *word
	Config *word
}

func (c *lsCommand) run(out *printer) int {
	if err := c.list(); err != nil {
		return out.exit(err)
	}
	return 0
}

func (c *lsCommand) list() error {
	given := flags{}
	given.text("store", c.Store)
	given.text("config", c.Config)
	name := ""
	if c.Name != nil {
		name = string(*c.Name)
		if err := locks.CheckName(name); err != nil {
			return usageError{fmt.Errorf("name %q: %w", locks.Printable(name, 80), err)}
		}
		given[config.NameKey] = []string{name} // its table in the file may name a store
	}
	// The variable is for run: without a name the user wants to see all.
	v, err := given.resolveWithout("GOLOCK_NAME")
	if err != nil {
		return err
	}
	store, err := storeOf(v)
	if err != nil {
		return err
	}
	defer store.Close()
	users := userNames{}
	shown := []shownEntry{}
	var failed error
	for e, err := range store.Entries(context.Background(), name) {
		if err != nil {
			failed = err // what there is to see is shown
			break
		}
		one := users.show(e)
		if store.Traits().Leased {
			left := e.Expires.Milliseconds()
			one.Expires = &left
		}
		shown = append(shown, one)
	}
	show := printTable
	if c.JSON {
		show = printJSON
	}
	if err := show(shown); err != nil {
		return outputError{err}
	}
	return failed
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
		Name: e.Name, ID: e.Ref.String(), State: e.State, Slots: e.Slots, Position: e.Position,
		Weight: e.Claim.Weight, Max: e.Claim.Max, Priority: e.Claim.Priority,
		Host: e.Host, PID: e.PID, User: name, Command: e.Command, Since: e.Since.Format(time.RFC3339Nano),
		Fence: e.Fence, Orphaned: e.Orphaned,
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
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(shown)
}

func printTable(shown []shownEntry) error {
	if len(shown) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tSLOT\tMAX\tPID\tUSER\tSINCE\tCOMMAND")
	for _, e := range shown {
		state, slot, limit := string(e.State), slotText(e.Slots), strconv.Itoa(e.Max)
		if e.State == locks.Waiting {
			state, slot = fmt.Sprintf("waiting %d", e.Position), "-"
		}
		switch {
		case e.Orphaned:
			state = "orphaned"
		case e.ended:
			till, _ := time.Parse(time.RFC3339Nano, e.HeldTill)
			state = "held until " + till.Local().Format(time.TimeOnly)
		case e.leaving:
			state += ", told to go"
		}
		if e.Max == 0 {
			limit = "shared"
		}
		since, _ := time.Parse(time.RFC3339Nano, e.Since)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", locks.Printable(e.Name, 40), state, slot, limit, e.PID,
			locks.Printable(e.User, 20), since.Local().Format("2006-01-02 15:04:05"), locks.Printable(strings.Join(e.Command, " "), 60))
	}
	return w.Flush()
}

func slotText(slots []int) string {
	words := make([]string, len(slots))
	for i, s := range slots {
		words[i] = strconv.Itoa(s)
	}
	return strings.Join(words, ",")
}
