package local

import (
	"os"
	"slices"

	"golock/internal/procfs"
	"golock/locks"
)

// enclosing returns the run around this process that holds the lock, or nil. The holders of a
// removed file are not known, so any run around this process may be one of them.
func (e *entry) enclosing() *locks.Ref {
	for _, run := range slices.Backward(e.request.Within) {
		isEnclosing := func(h record) bool { return h.id == run.ID && !h.onlyHold && e.mayEnclose(&h) }
		if e.obstacles.removedFile || slices.ContainsFunc(e.obstacles.holders, isEnclosing) {
			return &run
		}
	}
	return nil
}

// mayEnclose reports whether this process may belong to the command of a holder. It does not if the
// golock of the holder lives and is not an ancestor: at(1) has started this process, or this process
// has become a daemon. If that golock has become its command, the slot lasts as long as any process
// has inherited it. This process may have inherited it too, and would then wait for itself.
func (e *entry) mayEnclose(h *record) bool {
	if h.pidNS == 0 || h.pidNS != procfs.Namespace("pid") || !h.isAlive() {
		return true // the process that the record names has ended, or cannot be seen here
	}
	isAncestor, known := procfs.IsAncestor(int(h.pid))
	if isAncestor || !known {
		return true
	}
	if h.noGolock == 0 {
		return false
	}
	selfAndAncestors := append([]int{os.Getpid()}, procfs.Ancestors(os.Getpid())...)
	holder := &victim{record: *h, file: e.file, kernelName: e.file.kernelName()}
	return slices.ContainsFunc(selfAndAncestors, func(pid int) bool {
		owns, _ := holder.owns(pid)
		return owns
	})
}
