package files

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// format is the number of the layout that this program writes and understands.
const format = 3

// The directory of a name has these files, and the versions of its state.
const (
	headFile   = "name"  // the format and the name (head)
	recordsDir = "data"  // the directory of the records, a file for each entry
	seenPrefix = "seen." // begins the name of a file of notes (writeNotes); the name of a clock follows
)

// usedSuffix ends the name of a file that lies beside the directory of a name. The names of both begin with the
// key. If that file exists without the directory, somebody has removed the directory.
const usedSuffix = ".used"

// directory is the directory of one name.
type directory struct {
	store    *Store
	key      locks.Key
	path     string
	name     string        // empty until the directory is made or loaded
	observed *observations // what this process has seen in the directory
}

// head is the content of headFile.
type head struct {
	Format int    `json:"golock"`
	Name   string `json:"name"`
}

func (s *Store) directoryOf(key locks.Key) *directory {
	observed, _ := s.observed.LoadOrStore(key, &observations{})
	return &directory{store: s, key: key, path: s.dir + "/" + key.String(), observed: observed.(*observations)}
}

// findOrBuild finds the directory of a name, or builds it.
func (d *directory) findOrBuild(name string) error {
	path := d.path + usedSuffix
	_, err := stat(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW)
	isUsed := err == nil // then the directory existed before
	if err != nil && err != unix.ENOENT {
		return pathError("stat", path, err)
	}
	found, err := d.load()
	if err == locks.ErrLost && !isUsed {
		err = d.build(name)
		// A process that was faster may have removed the temporary files of this one.
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			found, err = d.load()
		}
	}
	switch {
	case err == locks.ErrLost:
		return d.lossError("when no run holds the name any more, remove " + path + " too")
	case err == nil && found != name:
		return &locks.PathError{
			Path: d.path, Err: fmt.Errorf("belongs to the name %q, whose key is the same", locks.Printable(found, 80)),
			Hint: "choose another name",
		}
	case err == nil && !isUsed:
		err = d.markUsed()
	}
	if err == nil {
		d.name = name
	}
	return err
}

// load returns the name to which the directory belongs, or locks.ErrLost if there is no directory.
func (d *directory) load() (name string, err error) {
	text, err := d.readFile(headFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.store.checkDir()
		if err == nil {
			err = locks.ErrLost
		}
	}
	if err != nil {
		return "", err
	}
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return "", d.damaged(headFile, fmt.Errorf("%w: %w", errDamaged, err))
	}
	if h.Format != format {
		return "", &locks.PathError{
			Path: d.path, Err: fmt.Errorf("has format %d, this golock knows format %d", h.Format, format),
			Hint: "when no golock of any version uses it, remove " + d.path + " and " + d.path + usedSuffix,
		}
	}
	return h.Name, nil
}

func (d *directory) damaged(name string, err error) error {
	return &locks.PathError{
		Path: d.path + "/" + name, Err: fmt.Errorf("damaged: %w", err),
		Hint: "remove " + d.path + " and " + d.path + usedSuffix + " when no run uses them",
	}
}

// directories returns the directory of a name. If the name is "", it returns the directories of all
// names, sorted by name. The error joins the errors of directories that cannot be read.
func (s *Store) directories(name string) ([]*directory, error) {
	names := []string{locks.KeyOf(name).String()}
	err := s.checkDir()
	if err == nil && name == "" {
		names, err = readNames(s.dir + "/.") // the directory may be reached by a symbolic link
	}
	if err != nil {
		return nil, err
	}
	var all []*directory
	var failed []error
	for _, base := range names {
		if !isID(base) {
			continue
		}
		var key locks.Key
		_, _ = hex.Decode(key[:], []byte(base))
		d := s.directoryOf(key)
		d.name, err = d.load()
		switch {
		case err == locks.ErrLost, name == "" && errors.Is(err, unix.ENOTDIR): // it is not a directory of a name
		case err != nil:
			failed = append(failed, err)
		case locks.KeyOf(d.name) == key:
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *directory) int { return strings.Compare(a.name, b.name) })
	return all, locks.JoinSome(failed)
}

// isID reports whether a text is a key or an ID.
func isID(text string) bool { return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == "" }

// errNoDir says that the store's directory does not exist. An entry in the queue tries again, because
// somebody may mount the directory again.
var errNoDir = errors.New("does not exist")

// checkDir returns an error if the store's directory cannot be used. golock does not make a missing
// directory: on a shared file system the mount may be missing, or somebody may have removed the
// directory while slots were held.
func (s *Store) checkDir() error {
	st, err := stat(unix.AT_FDCWD, s.dir, 0)
	switch {
	case err == unix.ENOENT:
		return &locks.PathError{
			Path: s.dir, Err: errNoDir,
			Hint: "mount what belongs there, or mkdir " + s.dir + "; golock does not make the directory of a shared store",
		}
	case err != nil:
		return pathError("stat", s.dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return pathError("", s.dir, unix.ENOTDIR)
	}
	return nil
}

// errRemoved says that the directory of a name, or a version that was read before, does not exist any more.
var errRemoved = errors.New("was removed while it was in use")

// errOldState is an errRemoved on a file system that may show a client an old listing.
var errOldState error = oldState{}

type oldState struct{}

func (oldState) Error() string {
	return "is not as it was read before: this file system shows a client an old state"
}

func (oldState) Is(target error) bool { return target == errRemoved }

// explainMissing replaces the error about a missing file by one about the missing directory.
func (d *directory) explainMissing(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = d.store.checkDir()
	if err == nil {
		err = d.lossError("")
	}
	return err
}

// lossError returns the error of a directory that has lost what was in it before.
func (d *directory) lossError(hint string) error {
	m, _ := locks.MountOf(d.store.dir) // after an error the type is empty
	return d.lossErrorOn(m.Type, hint)
}

// lossErrorOn returns the error of lossError for a type of file system. A file system of FUSE may show
// old listings: sshfs does so for 20 seconds.
func (d *directory) lossErrorOn(fileSystem, hint string) error {
	if strings.HasPrefix(fileSystem, "fuse.") {
		return &locks.PathError{
			Path: d.path, Err: errOldState,
			Hint: "mount it without a cache (sshfs -o dir_cache=no), or take a store on a server",
		}
	}
	return &locks.PathError{Path: d.path, Err: errRemoved, Hint: hint}
}

// build makes the directory, or finishes it if the process that began it was killed. Several processes
// may build at once: only one can make the first version, and all write the same head.
func (d *directory) build(name string) error {
	st, err := stat(unix.AT_FDCWD, d.store.dir, 0)
	if err != nil {
		return pathError("stat", d.store.dir, err)
	}
	for _, path := range []string{d.path, d.path + "/" + recordsDir} {
		if err := makeDirectory(unix.AT_FDCWD, path, st.Mode); err != nil && err != unix.EEXIST {
			return pathError("mkdir", path, err)
		}
	}
	h, err := d.open()
	if err != nil {
		return err
	}
	defer h.close()
	if err := d.store.make(h, 1, &state{}); err != nil && err != errTaken {
		return h.fileError(d.store.scheme, versionName(1), err)
	}
	text, _ := json.Marshal(head{Format: format, Name: name})
	d.store.hook("built")
	return d.replaceFile(headFile, append(text, '\n'))
}

// readFile, makeFile and removeFile take the name of a file in the directory.

func (d *directory) readFile(name string) ([]byte, error) {
	text, err := readAt(unix.AT_FDCWD, d.path+"/"+name, maxFile)
	return text, pathError("read", d.path+"/"+name, err)
}

func (d *directory) makeFile(name string, text []byte) error {
	st, err := stat(unix.AT_FDCWD, d.path, 0)
	if err == nil {
		err = createAt(unix.AT_FDCWD, d.path+"/"+name, st.Mode, text)
	}
	return pathError("create", d.path+"/"+name, err)
}

// removeFile removes a file if it exists, or an empty directory that somebody has put in its place.
func (d *directory) removeFile(name string) error {
	err := unlinkAt(unix.AT_FDCWD, d.path+"/"+name)
	if err == unix.EISDIR || err == unix.EPERM { // the errors of unlink(2) for a directory, on Linux and in POSIX
		rmdirErr := unix.Rmdir(d.path + "/" + name)
		if rmdirErr != unix.ENOTDIR {
			err = rmdirErr
		}
	}
	if err == unix.ENOENT {
		return nil
	}
	return pathError("remove", d.path+"/"+name, err)
}

// replaceFile writes a file under a temporary name, then renames it, so that nobody reads a part of it.
// prune removes the temporary file of a killed writer.
func (d *directory) replaceFile(name string, text []byte) error {
	temp := tempName(1)
	err := d.makeFile(temp, text)
	if err == nil {
		err = os.Rename(d.path+"/"+temp, d.path+"/"+name)
	}
	if err != nil {
		_ = d.removeFile(temp)
	}
	return err
}

// markUsed makes the file which shows that the name has been used.
func (d *directory) markUsed() error {
	path := d.path + usedSuffix
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err == nil {
		err = unix.Close(fd)
	}
	if err == unix.EEXIST {
		return nil
	}
	return pathError("create", path, err)
}
