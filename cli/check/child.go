package check

import (
	"bytes"
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

	"golock/internal/procfs"
)

// ChildName is the first argument of a process that is to be a child of a test.
const ChildName = "golock-check-child"

// The files in the directory of a test.
const (
	recordFile  = "record"  // the notes of the children
	insideFile  = "inside"  // each child inside has locked a byte
	counterFile = "counter" // one for each slot
	pipeFile    = "pipe."   // one for each run that is killed when its child is inside
)

// How long a child stays inside, at most. One whose tool will be killed stays longer, and
// longer still once its tool has died: if the lock is free too early, the next child must
// still find it there, also where a busy machine needs long to start that one. Of many in a
// row one more than the limit stay so long that they meet if nothing excludes them, on a
// busy machine twice as long as their start took.
const (
	longestStay    = time.Millisecond
	stayIfKilled   = 30 * time.Millisecond
	stayAfterTool  = 300 * time.Millisecond // or startsPerStay times as long as its own start took
	startsPerStay  = 5
	lookForOthers  = 5 * time.Millisecond
	meeting        = 200 * time.Millisecond
	longestMeeting = 2 * time.Second
	meetEvery      = 250
)

// child is the command line of a child.
func (t *Test) child(number int, toBeKilled bool) []string {
	stay := rand.N(longestStay)
	switch {
	case number%meetEvery <= t.Limit:
		stay = meeting
	case toBeKilled:
		stay = stayIfKilled
	}
	return []string{t.Program, ChildName, t.Dir, strconv.Itoa(number), strconv.Itoa(t.Limit),
		strconv.FormatInt(int64(stay), 10), strconv.FormatInt(now(), 10)}
}

// Child is a child: it goes inside, adds one, and ends. args follow ChildName.
//
// While it is inside it has a byte of a file locked, which the kernel frees however the
// child ends. So nobody needs to guess how long a killed child was inside. Each takes the
// first byte that is free: the last one that was ever taken tells how many were inside together.
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
	if stay == meeting {
		stay = max(stay, min(2*time.Duration(n.Begin-started), longestMeeting))
	}
	inside, err := unix.Open(dir+"/"+insideFile, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, insideFile, err)
	}
	if n.Place, err = lockFirst(inside); err != nil {
		return fmt.Errorf("lock a byte of %s/%s: %w (set TMPDIR to a directory on a local file system)", dir, insideFile, err)
	}
	n.Fence, _ = strconv.ParseInt(os.Getenv("GOLOCK_FENCE"), 10, 64)
	if slot, err := strconv.Atoi(os.Getenv("GOLOCK_SLOT")); err == nil {
		n.Slot = slot
	}
	counter := n.counter(dir, limit)
	count := readCount(counter)
	if err := n.append(dir); err != nil {
		return err
	}
	if stay == stayIfKilled && sayInside(dir, n.Number) {
		awaitDeath(longestMeeting)
	}
	time.Sleep(stay)
	if stay == stayIfKilled && !toolIsAlive() {
		// The next child needs about as long to start as this one did.
		limit := max(stayAfterTool, min(startsPerStay*startTook(n.Begin), longestMeeting))
		if err := awaitOther(inside, limit); err != nil {
			return err
		}
	}
	// All of it at once, always of the same length.
	if err := writeLine(counter, 0, "%12d\n", count+1); err != nil {
		return err
	}
	n.End = now()
	if err := n.append(dir); err != nil {
		return err
	}
	return unix.Close(inside) // before the process ends, which takes time
}

// lockFirst locks the first byte of the file that is free.
func lockFirst(fd int) (at int, err error) {
	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(at), Len: 1}
		if err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != unix.EAGAIN {
			return at, err
		}
		at++
	}
}

// toolIsAlive reports whether the process still exists that was started as the tool. It leads
// the session of the child, as long as the tool makes no other one.
func toolIsAlive() bool {
	leader, err := unix.Getsid(0)
	return err != nil || unix.Kill(leader, 0) != unix.ESRCH
}

// makePipe makes the pipe by which the child of this number says that it is inside. The caller
// closes it.
func makePipe(dir string, number int) (*os.File, error) {
	file := dir + "/" + pipeFile + strconv.Itoa(number)
	if err := unix.Mkfifo(file, 0o600); err != nil {
		return nil, fmt.Errorf("make the pipe %s: %w", file, err)
	}
	// Open for both, it needs no writer yet.
	return os.OpenFile(file, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// sayInside says through the pipe of the child that it is inside, and reports whether there is
// one: its tool is killed now.
func sayInside(dir string, number int) bool {
	pipe, err := os.OpenFile(dir+"/"+pipeFile+strconv.Itoa(number), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false // there is none, or nobody reads it any more
	}
	defer pipe.Close()
	_, err = pipe.Write([]byte{1})
	return err == nil
}

// awaitDeath returns when the tool is dead, after limit at the latest.
func awaitDeath(limit time.Duration) {
	for end := now() + int64(limit); toolIsAlive() && now() < end; {
		time.Sleep(lookForOthers)
	}
}

// startTook is how long it took from the fork of this process until it was in main, at the
// moment begun; 0: not known.
func startTook(begun int64) time.Duration {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	return time.Duration(begun) - time.Duration(self.Start)*procfs.Tick
}

// awaitOther returns when another child has locked a byte of the file, after limit at the
// latest.
func awaitOther(fd int, limit time.Duration) error {
	for end := now() + int64(limit); now() < end; time.Sleep(lookForOthers) {
		found := unix.Flock_t{Type: unix.F_WRLCK} // Len 0: to the end of the file
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &found); err != nil {
			return fmt.Errorf("look for locks of others: %w", err)
		}
		if found.Type != unix.F_UNLCK {
			return nil
		}
	}
	return nil
}

// readCount reads a counter. What is damaged or cannot be read counts as lost updates.
func readCount(file string) int {
	text, _ := os.ReadFile(file) // none: nobody has made it yet
	count, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return count
}

func writeLine(file string, flag int, format string, args ...any) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|flag, 0o600)
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
	Place  int   // the byte that it had locked while it was inside
	Slot   int   // -1: it was given none
	Fence  int64 // 0: it was given none
}

// ended reports whether the child has done its work; n may be nil.
func (n *note) ended() bool { return n != nil && n.End != 0 }

// counter is the file of the counter that the child uses, alone if the lock excludes: that of
// its slot, or its own where the tool lets several in without slot numbers.
func (n *note) counter(dir string, limit int) string {
	slot := strconv.Itoa(n.Slot)
	switch {
	case limit == 1:
		slot = "0"
	case n.Slot < 0:
		slot = "none-" + strconv.Itoa(n.Number)
	}
	return dir + "/" + counterFile + "." + slot
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
	text, err := os.ReadFile(dir + "/" + recordFile)
	if err != nil && !os.IsNotExist(err) { // there is none if nobody has been inside
		return nil, err
	}
	notes := map[int]*note{}
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		n := &note{}
		if err := lines.Decode(n); err == io.EOF {
			return notes, nil
		} else if err != nil {
			return nil, fmt.Errorf("the notes of the children cannot be read: %w", err)
		}
		notes[n.Number] = n
	}
}
