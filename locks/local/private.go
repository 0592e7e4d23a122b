package local

import (
	"bytes"
	"errors"
	"os"
	"strings"

	"golock/locks"
)

// checkParent refuses a parent if other processes of the user would not see the locks in it.
func (r roots) checkParent(p parent) error {
	if err := r.checkTmp(p); err != nil {
		return err
	}
	return r.checkPrivate(p)
}

// checkTmp refuses the private /tmp of a service (PrivateTmp= of systemd).
func (r roots) checkTmp(p parent) error {
	if p.path != r.tmp {
		return nil
	}
	m, err := r.mountOf(r.tmp)
	if err != nil || m.Point != r.tmp || !strings.Contains(m.Root, "private") {
		return nil
	}
	return &locks.PathError{
		Path: r.tmp, Err: errors.New("is private to this service: its locks would be seen by nobody else"),
		Hint: "have " + r.run + "/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), " +
			"or name a shared directory with --store local:///DIR",
	}
}

// checkPrivate refuses a parent if it, or one that is preferred to it, is private to this process.
// pick calls it only as long as no run has made the default directory, because it takes time.
func (r roots) checkPrivate(chosen parent) error {
	if r.isForSockets {
		return nil // a process that talks to a socket there is in the same sandbox
	}
	for _, p := range r.parents() {
		if r.isPrivate(p.path) {
			return r.refusePrivate(p.path)
		}
		if p == chosen {
			break
		}
	}
	return nil
}

func (r roots) refusePrivate(path string) error {
	return &locks.PathError{
		Path: path, Err: errors.New("is private to this process, process 1 sees another directory there: nobody else would see these locks"),
		Hint: "in a systemd unit with TemporaryFileSystem=, BindPaths=" + r.parents()[0].path + "; or name a shared directory with --store local:///DIR",
	}
}

// isPrivate reports whether a path leads to another directory for process 1, although both have the
// same root directory. That is so in the sandbox of a systemd unit and after unshare -m. A container
// has another root, or a process 1 of its own. If process 1 cannot be examined, in a chroot or
// where /proc hides it, the path counts as not private.
func isPrivate(path string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	text1, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil || bytes.Equal(text, text1) {
		return false
	}
	ofProcess, ofProcess1 := locks.ParseMounts(string(text)), locks.ParseMounts(string(text1))
	root := ofProcess.Where("/")
	if root == "" || root != ofProcess1.Where("/") {
		return false
	}
	here, there := ofProcess.Where(path), ofProcess1.Where(path)
	return here != "" && there != "" && here != there
}
