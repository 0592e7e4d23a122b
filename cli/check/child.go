package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ChildName is the first argument of a process that is to be a child of a test.
const ChildName = "golock-check-child"

// The files in the directory of a test.
const (
	recordFile  = "record"  // the notes of the children
	insideFile  = "inside"  // each child inside has locked a byte
	counterFile = "counter" // one for each slot
)

// slotBytes is where the bytes of the slots begin, after those of the children.
const slotBytes = 1 << 40

// How long a child stays inside, at most. One whose tool will be killed stays longer:
// if the lock is free too early, the next child must still find it there. Some stay
// so long that they meet if nothing excludes them: those whose tool is killed while they
// are inside, and of every hundred in a row one more than the limit. On a busy machine that
// is twice as long as the start of the child took.
const (
	longestStay     = time.Millisecond
	longestIfKilled = 20 * time.Millisecond
	meeting         = 50 * time.Millisecond
	firstMeeting    = 4 * meeting // of the first children: there may not be a hundred
	longestMeeting  = 2 * time.Second
	meetEvery       = 100
	killedMeetEvery = 10
)

// child is the command line of a child.
func (t *Test) child(number int, toBeKilled bool) []string {
	stay := rand.N(longestStay)
	switch {
	case number <= t.Limit:
		stay = firstMeeting
	case number%meetEvery <= t.Limit, toBeKilled && number%killedMeetEvery == 0:
		stay = meeting
	case toBeKilled:
		stay = rand.N(longestIfKilled)
	}
	return []string{t.Program, ChildName, t.Dir, strconv.Itoa(number), strconv.Itoa(t.Limit),
		strconv.FormatInt(int64(stay), 10), strconv.FormatInt(now(), 10)}
}

// Child is a child: it goes inside, adds one, and ends. args follow ChildName.
//
// While it is inside it has a byte of a file locked, which the kernel frees however the
// child ends. So nobody needs to guess how long a killed child was inside, and the last
// of several that are inside together sees all the others.
func Child(args []string) error {
	n := note{Begin: now(), Slot: -1}
	_ = unix.Setpgid(0, 0) // its tool may be killed, and the process group with it
	if len(args) != 5 {
		return errors.New("only golock check starts this")
	}
	dir := args[0]
	var limit int
	var stay time.Duration
	var started int64
	if _, err := fmt.Sscan(strings.Join(args[1:], " "), &n.Number, &limit, &stay, &started); err != nil {
		return err
	}
	if stay >= meeting {
		stay = max(stay, min(2*time.Duration(n.Begin-started), longestMeeting))
	}
	inside, err := unix.Open(dir+"/"+insideFile, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, insideFile, err)
	}
	if err := lockByte(inside, int64(n.Number)); err != nil {
		return fmt.Errorf("lock a byte of %s/%s: %w (set TMPDIR to a directory on a local file system)", dir, insideFile, err)
	}
	if n.Others, err = lockedIn(inside, 0, slotBytes); err != nil {
		return fmt.Errorf("look for locks on %s/%s: %w", dir, insideFile, err)
	}
	n.Fence, _ = strconv.ParseInt(os.Getenv("GOLOCK_FENCE"), 10, 64)
	if slot, err := strconv.Atoi(os.Getenv("GOLOCK_SLOT")); err == nil {
		n.Slot = slot
		err := lockByte(inside, slotBytes+int64(slot))
		if n.Clash = err == unix.EAGAIN; err != nil && !n.Clash {
			return err
		}
	}
	counter := counterOf(dir, n.Slot, limit)
	if n.Found, err = readCount(counter); err != nil {
		return err
	}
	if err := n.append(dir); err != nil {
		return err
	}
	time.Sleep(stay)
	if err := writeCount(counter, count{n.Found.Value + 1, n.Number}); err != nil {
		return err
	}
	n.End = now()
	if err := n.append(dir); err != nil {
		return err
	}
	return unix.Close(inside) // before the process ends, which takes time
}

// counterOf is the file of the counter that a child in a slot uses alone; /dev/null: the
// tool lets several in without slot numbers, so there is none.
func counterOf(dir string, slot, limit int) string {
	switch {
	case limit == 1:
		slot = 0
	case slot < 0:
		return os.DevNull
	}
	return dir + "/" + counterFile + "." + strconv.Itoa(slot)
}

// lockByte locks a byte of the file; EAGAIN: another process has locked it.
func lockByte(fd int, at int64) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
}

// lockedIn counts the bytes from from on, before to, that others have locked.
func lockedIn(fd int, from, to int64) (int, error) {
	if from >= to {
		return 0, nil
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: from, Len: to - from}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock); err != nil {
		return 0, err
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	before, err := lockedIn(fd, from, lock.Start)
	if err != nil {
		return 0, err
	}
	after, err := lockedIn(fd, lock.Start+1, to)
	return before + 1 + after, err
}

// isInside reports whether a child is inside.
func isInside(dir string, number int) bool {
	fd, err := unix.Open(dir+"/"+insideFile, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, _ := lockedIn(fd, int64(number), int64(number)+1)
	return n > 0
}

// count is the content of a counter: its value, and who wrote it (-1: nobody).
type count struct{ Value, Last int }

func readCount(file string) (count, error) {
	c := count{Last: -1}
	text, err := os.ReadFile(file)
	// Empty: there is no counter, or another child, wrongly inside, makes it.
	if errors.Is(err, os.ErrNotExist) || err == nil && len(text) == 0 {
		return c, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &c.Value, &c.Last)
	}
	return c, err
}

// writeCount writes all of it at once, always of the same length.
func writeCount(file string, c count) error {
	return writeLine(file, os.O_CREATE, "%12d %12d\n", c.Value, c.Last)
}

func writeLine(file string, flag int, format string, args ...any) error {
	f, err := os.OpenFile(file, os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, format, args...)
	return err
}

// note is what a child writes about itself: a line when it is inside, and the same line
// with its end when it leaves.
type note struct {
	Number int
	Begin  int64 // when its process began; in nanoseconds of now
	End    int64 // when it had written the counter; 0: it never did, or was killed before its second line
	Others int   // how many it saw inside
	Slot   int   // -1: it was given none
	Clash  bool  // another child was in that slot
	Fence  int64 // 0: it was given none
	Found  count // the counter as it was
}

// append writes the line, whole, after those of all others.
func (n *note) append(dir string) error {
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return writeLine(dir+"/"+recordFile, os.O_APPEND, "%s\n", line)
}

// readNotes gives the notes of all children by their numbers.
func readNotes(dir string) (map[int]*note, error) {
	f, err := os.Open(dir + "/" + recordFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	notes := map[int]*note{}
	for lines := json.NewDecoder(f); ; {
		n := &note{}
		if err := lines.Decode(n); err == io.EOF {
			return notes, nil
		} else if err != nil {
			return nil, fmt.Errorf("the notes of the children cannot be read: %w", err)
		}
		if notes[n.Number] != nil && n.End == 0 {
			return nil, errors.New("a child was started twice")
		}
		notes[n.Number] = n
	}
}
