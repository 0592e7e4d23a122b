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

// ChildName is the first argument that makes a golock process a child of a test.
const ChildName = "golock-check-child"

// The files in the directory of a test.
const (
	recordFile  = "record"  // the notes of the children
	insideFile  = "inside"  // each child that is inside has a byte of it locked
	counterFile = "counter" // a counter for each slot
	pipeFile    = "pipe."   // a pipe for each run that is killed when its child is inside
)

const (
	// longestStay limits the time that most children stay inside.
	longestStay = time.Millisecond

	// A child whose tool will be killed stays for stayIfKilled. Once its tool has died it stays for
	// stayAfterTool, or for startsPerStay times the duration of its own start if that is longer. If the
	// lock is free too early, the next child must find this one inside, also on a busy machine where it
	// takes long to start.
	stayIfKilled  = 30 * time.Millisecond
	stayAfterTool = 300 * time.Millisecond
	startsPerStay = 5
	pollInterval  = 5 * time.Millisecond

	// The first Limit+1 of each meetEvery children stay for meeting, so that they are inside together if
	// the lock lets too many in. On a busy machine they stay for twice the duration of their start, up to
	// longestMeeting.
	meeting        = 200 * time.Millisecond
	longestMeeting = 2 * time.Second
	meetEvery      = 250
)

// child returns the command line of a child.
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

// Child is the work of a child: it adds 1 to a counter while it is inside the lock. args are the
// arguments after ChildName.
//
// While it is inside, the child has a byte of a file locked. The kernel frees the byte however the
// child ends, so nobody has to guess how long a killed child was inside. Each child locks the first
// free byte. So the highest byte that was ever locked tells how many children were inside together.
func Child(args []string) error {
	n := note{Begin: now(), Slot: -1}
	_ = unix.Setpgid(0, 0) // a kill of the tool's process group must not reach the child
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
	isMeeting, mayBeKilled := stay == meeting, stay == stayIfKilled // see Test.child
	if isMeeting {
		stay = max(stay, min(2*time.Duration(n.Begin-started), longestMeeting))
	}
	inside, err := unix.Open(dir+"/"+insideFile, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, insideFile, err)
	}
	n.Byte, err = lockFirst(inside)
	if err != nil {
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
	if mayBeKilled {
		willBeKilled := sayInside(dir, n.Number)
		if willBeKilled {
			awaitDeath(longestMeeting)
		}
	}
	time.Sleep(stay)
	if mayBeKilled && !toolIsAlive() { // a lock that is free too early lets another child in now
		// The next child needs about as long to start as this one did.
		longest := max(stayAfterTool, min(startsPerStay*startDuration(n.Begin), longestMeeting))
		if err := awaitOther(inside, longest); err != nil {
			return err
		}
	}
	// The counter always has the same length, so that one write(2) replaces it as a whole.
	if err := writeLine(counter, 0, "%12d\n", count+1); err != nil {
		return err
	}
	n.End = now()
	if err := n.append(dir); err != nil {
		return err
	}
	return unix.Close(inside) // frees the byte before the process ends, which takes time
}

// lockFirst locks the first free byte of the file and returns its offset.
func lockFirst(fd int) (offset int, err error) {
	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(offset), Len: 1}
		err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
		if err != unix.EAGAIN {
			return offset, err
		}
		offset++
	}
}

// toolIsAlive reports whether the process that was started as the tool still exists. That process
// leads the session of the child, unless the tool starts another session.
func toolIsAlive() bool {
	leader, err := unix.Getsid(0)
	return err != nil || unix.Kill(leader, 0) != unix.ESRCH
}

// makePipe makes the pipe into which the child with this number writes when it is inside. The caller
// closes the pipe.
func makePipe(dir string, number int) (*os.File, error) {
	file := dir + "/" + pipeFile + strconv.Itoa(number)
	if err := unix.Mkfifo(file, 0o600); err != nil {
		return nil, fmt.Errorf("make the pipe %s: %w", file, err)
	}
	// O_RDWR: a pipe that is opened only for reading would be at its end until the child opens it.
	return os.OpenFile(file, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// sayInside writes into the pipe of the child that the child is inside. It reports whether the child
// has a pipe with a reader, which then kills the tool.
func sayInside(dir string, number int) (willBeKilled bool) {
	pipe, err := os.OpenFile(dir+"/"+pipeFile+strconv.Itoa(number), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false // the child has no pipe, or nobody reads the pipe any more
	}
	defer pipe.Close()
	_, err = pipe.Write([]byte{1})
	return err == nil
}

// awaitDeath returns when the tool is dead, after limit at the latest.
func awaitDeath(limit time.Duration) {
	deadline := now() + int64(limit)
	for toolIsAlive() && now() < deadline {
		time.Sleep(pollInterval)
	}
}

// startDuration returns the time from the fork of this process until it reached main, which was at reachedMain
// (a time of now). It returns 0 if the time of the fork is not known.
func startDuration(reachedMain int64) time.Duration {
	self, err := procfs.Self()
	if err != nil {
		return 0
	}
	forked := self.Start * int64(procfs.Tick) // since boot, as reachedMain is
	return time.Duration(reachedMain - forked)
}

// awaitOther returns when another child has locked a byte of the file, after limit at the
// latest.
func awaitOther(fd int, limit time.Duration) error {
	deadline := now() + int64(limit)
	for now() < deadline {
		found := unix.Flock_t{Type: unix.F_WRLCK} // a length of 0 reaches to the end of the file
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &found); err != nil {
			return fmt.Errorf("look for locks of others: %w", err)
		}
		if found.Type != unix.F_UNLCK {
			return nil
		}
		time.Sleep(pollInterval)
	}
	return nil
}

// readCount reads a counter. A counter that is damaged or cannot be read counts as 0, so that the
// report has lost updates.
func readCount(file string) int {
	text, _ := os.ReadFile(file) // before the first addition there is no file
	count, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return count
}

// writeLine writes a formatted text to a file, which it makes if it is missing. flag is added to the flags of open.
func writeLine(file string, flag int, format string, args ...any) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|flag, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, format, args...)
	return err
}

// note is what a child writes about itself: a line when it is inside, and another one, with End, when it leaves.
type note struct {
	Number int
	Begin  int64 // when the process reached main; in nanoseconds of now
	End    int64 // when the child had written the counter; 0 if it was killed before that or before its second line
	Byte   int   // the byte that the child had locked while it was inside
	Slot   int   // -1 if the tool gave no slot number
	Fence  int64 // 0 if the tool gave no fencing token
}

// hasEnded reports whether the child has done its work. A child that never was inside has a nil note.
func (n *note) hasEnded() bool { return n != nil && n.End != 0 }

// counter returns the file of the counter that the child uses: the counter of its slot. If the lock works,
// no other child uses that counter at the same time. A tool that admits several children without slot
// numbers gets a counter for each child.
func (n *note) counter(dir string, limit int) string {
	file := dir + "/" + counterFile + "."
	switch {
	case limit == 1: // the only slot, which other tools do not number
		return file + "0"
	case n.Slot < 0:
		return file + "none-" + strconv.Itoa(n.Number)
	}
	return file + strconv.Itoa(n.Slot)
}

// append appends the line to the file of all children, with one write(2).
func (n *note) append(dir string) error {
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return writeLine(dir+"/"+recordFile, os.O_APPEND, "%s\n", line)
}

// readNotes returns the notes of all children by their numbers.
func readNotes(dir string) (map[int]*note, error) {
	text, err := os.ReadFile(dir + "/" + recordFile)
	if err != nil && !os.IsNotExist(err) { // the file does not exist if no child has been inside
		return nil, err
	}
	notes := map[int]*note{}
	lines := json.NewDecoder(bytes.NewReader(text))
	for {
		n := &note{}
		err := lines.Decode(n)
		if err == io.EOF {
			return notes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the notes of the children cannot be read: %w", err)
		}
		notes[n.Number] = n
	}
}
