package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// format is the number of the layout that this program writes and understands.
const format = 2

// What a name's directory contains besides the versions.
const (
	headFile   = "name"  // format and name
	recordsDir = "data"  // a file for each entry
	seenPrefix = "seen." // what the hosts of this clock have seen
)

// usedSuffix ends the name of a file beside a name's directory, which is called by the
// name's key. The file shows that a missing directory was removed.
const usedSuffix = ".used"

// directory is that of one name, and what this process has observed there.
type directory struct {
	store *Store
	key   locks.Key
	path  string
	name  string // "": neither made nor loaded yet

	mu      sync.Mutex             // guards what follows
	seen    map[string]observation // by record; nil: the notes are not read yet
	newSeen bool                   // there are observations that are not in the notes
}

// head is the content of headFile.
type head struct {
	Format int    `json:"golock"`
	Name   string `json:"name"`
}

func (s *Store) directoryOf(key locks.Key) *directory {
	return &directory{store: s, key: key, path: s.dir + "/" + key.String()}
}

// make finds the directory of a name, or builds it.
func (d *directory) make(name string) error {
	for range 10 {
		h, err := d.readHead()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := d.build(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case err != nil:
			return err
		case h.Name != name:
			return &locks.PathError{
				Path: d.path, Err: fmt.Errorf("belongs to the name %q, whose key is the same", locks.Printable(h.Name, 80)),
				Hint: "choose another name",
			}
		default:
			if err = d.markUsed(); err == nil {
				d.name = name
			}
			return err
		}
	}
	return &locks.PathError{Path: d.path, Err: errors.New("vanishes as often as it is made")}
}

// readHead reads what the directory belongs to. A missing directory is fs.ErrNotExist.
func (d *directory) readHead() (h head, err error) {
	text, err := readFile(d.path + "/" + headFile)
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, d.damaged(headFile, err)
	}
	if h.Format != format {
		return h, &locks.PathError{
			Path: d.path, Err: fmt.Errorf("has format %d, this golock knows format %d", h.Format, format),
			Hint: "when no golock of any version uses it, remove " + d.path + " and " + d.path + usedSuffix,
		}
	}
	return h, nil
}

func (d *directory) damaged(name string, err error) error {
	return &locks.PathError{
		Path: d.path + "/" + name, Err: fmt.Errorf("damaged: %w", err),
		Hint: "remove " + d.path + " and " + d.path + usedSuffix + " when no run uses them",
	}
}

// load reads the name of an existing directory. A missing one is locks.ErrLost.
func (d *directory) load() error {
	h, err := d.readHead()
	if errors.Is(err, fs.ErrNotExist) {
		err = cmp.Or(d.store.checkDir(), locks.ErrLost)
	}
	d.name = h.Name
	return err
}

// directories gives that of a name, or all ("") sorted by name. Errors are of those that
// cannot be read.
func (s *Store) directories(name string) ([]*directory, error) {
	names, err := []string{locks.KeyOf(name).String()}, s.checkDir()
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
		d := &directory{store: s, path: s.dir + "/" + base}
		err := d.load()
		d.key = locks.KeyOf(d.name)
		switch {
		case errors.Is(err, locks.ErrLost), name == "" && errors.Is(err, unix.ENOTDIR):
		case err != nil:
			failed = append(failed, err)
		case d.key.String() == base:
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *directory) int { return strings.Compare(a.name, b.name) })
	return all, errors.Join(failed...)
}

// isID reports whether a text is a key or an ID.
func isID(text string) bool { return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == "" }

// errNoDir is temporary for an entry in the queue: the directory may be mounted again.
var errNoDir = errors.New("does not exist")

// checkDir says why the store's directory cannot be used. golock does not make a missing
// one: on a shared file system it means that nothing is mounted, or that somebody has
// removed it under the holders.
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

var errRemoved = errors.New("was removed while it was in use")

// vanished turns the error of a missing directory into one that says so.
func (d *directory) vanished(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return cmp.Or(d.store.checkDir(), pathError("", d.path, errRemoved))
}

// build makes the directory, or finishes it if its maker was killed. It may be slower than
// another maker: the first version is made once only, and all write the same head.
func (d *directory) build(name string) error {
	if err := d.store.checkDir(); err != nil {
		return err
	}
	if used, err := exists(d.path + usedSuffix); err != nil {
		return err
	} else if used {
		// Somebody may have made the directory since it was missing.
		if again, err := exists(d.path + "/" + headFile); err != nil || again {
			return err
		}
		return &locks.PathError{
			Path: d.path, Err: errRemoved,
			Hint: "when no run holds the name any more, remove " + d.path + usedSuffix + " too",
		}
	}
	for _, path := range []string{d.path, d.path + "/" + recordsDir} {
		if err := makeDirectory(path, d.store.dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	fd, err := openDirectory(d.path)
	if err != nil {
		return pathError("open", d.path, err)
	}
	h := &handle{d, fd}
	defer h.close()
	if err := d.store.make(h, tempName(1), versionName(1), (&state{}).text()); err != nil && err != errTaken {
		return h.fault(d.store.scheme, versionName(1), err)
	}
	text, err := json.Marshal(head{Format: format, Name: name})
	if err != nil {
		return err
	}
	d.store.at("built")
	return d.replaceFile(headFile, append(text, '\n'))
}

// replaceFile writes a file whole under a temporary name, then renames it. What is left of
// a killed writer is removed with the old versions.
func (d *directory) replaceFile(name string, text []byte) error {
	temp := d.path + "/" + tempName(1)
	err := makeFile(temp, d.path, text)
	if err == nil {
		err = pathError("rename", temp, rename(temp, d.path+"/"+name))
	}
	if err != nil {
		_ = removeFile(temp)
	}
	return err
}

// markUsed notes that the name is in use.
func (d *directory) markUsed() error {
	path := d.path + usedSuffix
	if used, err := exists(path); err != nil || used {
		return err
	}
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err == nil {
		err = unix.Close(fd)
	}
	if err == unix.EEXIST {
		return nil
	}
	return pathError("create", path, err)
}
