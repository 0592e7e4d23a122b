package check

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

// note is what a child has noted of its time inside: a line when it has come in,
// and the same line with its end when it goes.
type note struct {
	number int
	begin  int64 // when its process began; in nanoseconds of now
	end    int64 // when it had written the counter; 0: it never did, or was killed before it could say so
	others int   // how many it saw inside
	slot   int   // -1: it was given none
	clash  bool  // somebody else was in that slot
	fence  int64 // 0: it was given none
	found  count // the counter as it was
}

const noteForm = "%d %d %d %d %d %t %d %d %d\n"

// append writes the line, whole, behind those of all others.
func (n *note) append(dir string) error {
	f, err := os.OpenFile(dir+"/"+recordFile, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, noteForm, n.number, n.begin, n.end, n.others, n.slot, n.clash, n.fence, n.found.value, n.found.last)
	return err
}

// readNotes gives the notes of all children by their numbers.
func readNotes(dir string) (map[int]*note, error) {
	f, err := os.Open(dir + "/" + recordFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	notes := map[int]*note{}
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return notes, lines.Err()
		}
		n := &note{}
		if _, err := fmt.Sscanf(lines.Text()+"\n", noteForm, &n.number, &n.begin, &n.end, &n.others, &n.slot, &n.clash, &n.fence, &n.found.value, &n.found.last); err != nil {
			return nil, fmt.Errorf("what the children noted cannot be read: %q: %w", lines.Text(), err)
		}
		if old := notes[n.number]; old != nil && n.end == 0 {
			return nil, errors.New("a child was started twice")
		}
		notes[n.number] = n
	}
}

// hasNotes reports whether any child has been inside.
func hasNotes(dir string) bool {
	st, err := os.Stat(dir + "/" + recordFile)
	return err == nil && st.Size() > 0
}
