package files

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// pick is whom the request puts out of its way: of those that were there before
// it.
func (e *entry) pick(others []seat) (picked []seat) {
	if e.request.Replace == locks.ReplaceNone || e.request.NoWait {
		return nil
	}
	rivals := make([]locks.Rival, len(others))
	for i, s := range others {
		rivals[i] = locks.Rival{Claim: s.claim(), State: locks.Waiting, Leaving: s.evicted != ""}
		if older(s.token, e.token) {
			rivals[i].Replace = s.record.Replace
			if s.ticket == e.token.ticket { // its ID goes first, of which a claim knows nothing
				rivals[i].Claim.Ticket--
			}
		}
		if s.kind == holds {
			rivals[i].State = locks.Holding
		}
	}
	for _, i := range locks.Replaced(rivals, e.claim(), e.request.Replace) {
		picked = append(picked, others[i])
	}
	return picked
}

// replace tells those to go whom the entry replaces. If that fails, the next
// look tries again.
func (e *entry) replace() {
	e.replaces = slices.DeleteFunc(e.replaces, func(t token) bool {
		e.store.at("replace")
		err := e.queue.evict(t, locks.ReplacedBy(e.request))
		return err == nil || errors.Is(err, locks.ErrLost)
	})
}

// settle has the entry stay in the line: it replaces those who are in its way
// now, and nobody later. The last waiter goes first and the holders go last, so
// that nobody who is to go is let in because another one has gone.
func (e *entry) settle(picked []seat) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settled = true
	for _, s := range slices.Backward(picked) {
		if s.kind == waits {
			e.replaces = append(e.replaces, s.token)
		}
	}
	for _, s := range picked {
		if s.kind == holds {
			e.replaces = append(e.replaces, s.token)
		}
	}
	e.replace()
}

// evict marks an entry, once.
func (q *queue) evict(t token, by string) error {
	path := q.dataPath(t.id) + "/" + evictedFile
	if here, err := exists(path); err != nil || here {
		return err
	}
	// Several may do so at once, each with a file of its own.
	own := path + "." + strconv.FormatUint(rand.Uint64(), 36)
	err := writeFile(own, []byte(by+"\n"))
	if err == nil {
		if err = rename(own, path); err != nil {
			err = &locks.PathError{Op: "rename", Path: own, Err: err}
		}
	}
	if errors.Is(err, unix.ENOENT) {
		if here, err := exists(path); err != nil || here { // two said so at once
			return err
		}
		return locks.ErrLost
	}
	return err
}
