package check

import (
	"errors"
	"fmt"
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
	recordFile  = "record"  // what the children note
	insideFile  = "inside"  // who is inside: a locked byte each
	counterFile = "counter" // one for each slot
)

// slotBytes is where the bytes of the slots begin, behind those of the children.
const slotBytes = 1 << 40

// How long a child stays between reading the counter and writing it, at most. One
// whose tool is to be killed stays for longer: if the lock is free too early the
// next one must find it still there. Of those every tenth, and of every hundred in a
// row one more than may be inside, stay for so long that they meet there if nothing
// keeps them apart: on a busy machine for twice as long as it took them to get there.
const (
	longestStay   = time.Millisecond
	longestOfDoom = 20 * time.Millisecond
	meeting       = 50 * time.Millisecond
	firstMeeting  = 4 * meeting // of the first of all: there may not be a hundred
	longMeeting   = 2 * time.Second
	meetEvery     = 100
	doomMeetEvery = 10
)

// child is the command line of a child.
func (t *Test) child(number int, doomed bool) []string {
	stay := rand.N(longestStay)
	switch {
	case number <= t.Limit:
		stay = firstMeeting
	case number%meetEvery <= t.Limit, doomed && number%doomMeetEvery == 0:
		stay = meeting
	case doomed:
		stay = rand.N(longestOfDoom)
	}
	return []string{t.Program, ChildName, t.Dir, strconv.Itoa(number), strconv.Itoa(t.Limit), strconv.FormatInt(int64(stay), 10), strconv.FormatInt(now(), 10)}
}

// Child is a child: it goes inside, adds one, and goes. Its arguments are what
// follows ChildName.
//
// That it is inside the kernel knows too: it has a byte of a file locked, which
// is free in the moment in which it ends, whatever its end. So also of a child
// that was killed nobody needs to guess how long it was there, and of any that
// are inside together the last one to come sees all the others.
func Child(args []string) error {
	n := note{begin: now(), slot: -1}
	if len(args) != 5 {
		return errors.New("only golock check starts this")
	}
	dir := args[0]
	var limit int
	var stay time.Duration
	var started int64
	if _, err := fmt.Sscan(strings.Join(args[1:], " "), &n.number, &limit, &stay, &started); err != nil {
		return err
	}
	if stay >= meeting {
		stay = max(stay, min(2*time.Duration(n.begin-started), longMeeting))
	}
	inside, err := unix.Open(dir+"/"+insideFile, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", dir, insideFile, err)
	}
	if taken, err := lockByte(inside, int64(n.number)); err != nil || !taken {
		return fmt.Errorf("lock a byte of %s/%s: %w (set TMPDIR to a directory on a local file system)", dir, insideFile, err)
	}
	if n.others, err = lockedIn(inside, 0, slotBytes); err != nil {
		return fmt.Errorf("look for locks on %s/%s: %w", dir, insideFile, err)
	}
	n.fence, _ = strconv.ParseInt(os.Getenv("GOLOCK_FENCE"), 10, 64)
	if slot, err := strconv.Atoi(os.Getenv("GOLOCK_SLOT")); err == nil {
		n.slot = slot
		taken, err := lockByte(inside, slotBytes+int64(slot))
		if err != nil {
			return err
		}
		n.clash = !taken
	}
	counter := counterOf(dir, n.slot, limit)
	value := count{last: -1}
	if counter != "" {
		if value, err = readCount(counter); err != nil {
			return err
		}
	}
	n.found = value
	if err := n.append(dir); err != nil {
		return err
	}
	time.Sleep(stay)
	if counter != "" {
		if err := writeCount(counter, count{value: value.value + 1, last: n.number}); err != nil {
			return err
		}
	}
	n.end = now()
	if err := n.append(dir); err != nil {
		return err
	}
	return unix.Close(inside) // before the process ends, which takes its time
}

// counterOf is the file of the counter that a child in a slot may use alone; ""
// if there is none: of a tool that lets several in and gives no numbers.
func counterOf(dir string, slot, limit int) string {
	switch {
	case limit == 1:
		slot = 0
	case slot < 0:
		return ""
	}
	return dir + "/" + counterFile + "." + strconv.Itoa(slot)
}

// lockByte locks a byte of the file and reports whether that was possible.
func lockByte(fd int, at int64) (bool, error) {
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1})
	if err == unix.EAGAIN || err == unix.EACCES {
		return false, nil
	}
	return err == nil, err
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

// count is what a counter says: its value, and who wrote it (-1: nobody).
type count struct {
	value int
	last  int
}

func readCount(file string) (count, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return count{last: -1}, nil
	}
	if err != nil {
		return count{}, err
	}
	c := count{last: -1}
	if len(text) == 0 { // just being made by somebody who should not be here now
		return c, nil
	}
	_, err = fmt.Sscan(string(text), &c.value, &c.last)
	return c, err
}

// writeCount writes all of it at once, always of the same length.
func writeCount(file string, c count) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%12d %12d\n", c.value, c.last)
	return err
}

// counters gives the sum of all counters, and who wrote them last.
func counters(dir string) (sum int, last map[int]bool) {
	last = map[int]bool{}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), counterFile+".") {
			continue
		}
		if c, err := readCount(dir + "/" + f.Name()); err == nil {
			sum += c.value
			last[c.last] = true
		}
	}
	return sum, last
}
