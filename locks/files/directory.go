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

	"golock/internal/eintr"
	"golock/locks"
)

// format is the number of the layout that this program writes and understands.
const format = 2

// What lies in a name's directory, which is called by the name's key, beside the
// versions.
const (
	headFile   = "name"  // format and name
	recordsDir = "data"  // a file for each entry
	seenPrefix = "seen." // what the hosts of this clock have seen
)

// Beside the directories of the names lie, in the store's directory, files with
// the suffix: a name whose directory has gone while its file is there was taken
// away under those who use it. Directories that are not complete yet have the
// prefix, and the name's key.
const (
	usedSuffix = ".used"
	newPrefix  = "new."
	oldPrefix  = "old." // of such that are being removed; as long
)

// directory is that of one name.
type directory struct {
	store *Store
	key   locks.Key
	path  string
	name  string
}

// head is the content of headFile.
type head struct {
	Format int    `json:"golock"`
	Name   string `json:"name"`
}

func (s *Store) keyPath(key locks.Key) string { return s.dir + "/" + key.String() }

func (s *Store) directoryOf(key locks.Key) *directory {
	return &directory{store: s, key: key, path: s.keyPath(key)}
}

// directory finds the directory of a name, or makes it.
func (s *Store) directory(name string) (*directory, error) {
	d := s.directoryOf(locks.KeyOf(name))
	d.name = name
	for range 10 {
		h, err := d.readHead()
		if errors.Is(err, fs.ErrNotExist) {
			if err = d.build(); err == nil || errors.Is(err, fs.ErrNotExist) {
				if err := s.checkDir(); err != nil {
					return nil, err
				}
				continue
			}
		}
		switch {
		case err != nil:
			return nil, err
		case h.Name != name:
			return nil, &locks.PathError{Path: d.path, Err: fmt.Errorf("belongs to the name %q, whose key is the same", locks.Printable(h.Name, 80)), Hint: "choose another name"}
		}
		return d, d.markUsed()
	}
	return nil, &locks.PathError{Path: d.path, Err: errors.New("vanishes as often as it is made")}
}

// readHead reads what the directory belongs to. An error of its not being there
// is fs.ErrNotExist.
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

// known completes the directory of a key; if there is none it is locks.ErrLost. It
// changes nothing.
func (d *directory) known() error {
	h, err := d.readHead()
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.store.checkDir(); err == nil {
			err = locks.ErrLost
		}
	}
	d.name = h.Name
	return err
}

// directories gives all there are, by name. One that cannot be read hides none of
// the others.
func (s *Store) directories() ([]*directory, error) {
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	names, err := readNames(s.dir + "/.") // the directory may be reached by a symbolic link
	if err != nil {
		return nil, err
	}
	var all []*directory
	var failed []error
	for _, base := range names {
		key, ok := keyFromName(base)
		if !ok {
			continue
		}
		d := s.directoryOf(key)
		switch err := d.known(); {
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, locks.ErrLost):
		case err != nil:
			failed = append(failed, err)
		case locks.KeyOf(d.name) == key:
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *directory) int { return strings.Compare(a.name, b.name) })
	return all, errors.Join(failed...)
}

// keyFromName reads a key as keyPath writes it.
func keyFromName(name string) (k locks.Key, ok bool) {
	n, err := hex.Decode(k[:], []byte(name[:min(len(name), 32)]))
	return k, err == nil && n == len(k) && k.String() == name
}

// checkDir says why the store's directory cannot be used. It is not made when it
// is missing: on a shared file system that says rather that nothing is mounted,
// or that somebody has removed it under those who hold something.
func (s *Store) checkDir() error {
	var st unix.Stat_t
	err := eintr.Repeat(func() error { return unix.Stat(s.dir, &st) })
	switch {
	case err == unix.ENOENT:
		return &locks.PathError{Path: s.dir, Err: errors.New("does not exist"), Hint: "mount what belongs there, or mkdir " + s.dir + "; golock does not make the directory of a shared store"}
	case err != nil:
		return &locks.PathError{Op: "stat", Path: s.dir, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &locks.PathError{Path: s.dir, Err: unix.ENOTDIR}
	}
	return nil
}

// vanished makes a missing directory an error that says so.
func (d *directory) vanished(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.store.checkDir(); err != nil {
		return err
	}
	return &locks.PathError{Path: d.path, Err: errRemoved}
}

var errRemoved = errors.New("was removed while it was in use")

// build makes the directory complete, with its first version, then gives it its name.
func (d *directory) build() error {
	if err := d.store.checkDir(); err != nil {
		return err
	}
	if here, err := exists(d.path + usedSuffix); err != nil {
		return err
	} else if here {
		// It may have come into being since.
		if again, err := exists(d.path); err != nil || again {
			return err
		}
		return &locks.PathError{Path: d.path, Err: errRemoved, Hint: "when no run holds the name any more, remove " + d.path + usedSuffix + " too"}
	}
	id, err := locks.NewRef(d.name)
	if err != nil {
		return err
	}
	fresh := d.store.dir + "/" + newPrefix + d.key.String() + "." + id.ID.String()
	d.store.at("build")
	if err = d.fill(fresh); err == nil {
		d.store.at("built")
		err = rename(fresh, d.path)
		if err == nil {
			return nil
		}
		if err == unix.ENOTEMPTY || err == unix.EEXIST { // somebody was faster
			err = nil
		} else {
			err = &locks.PathError{Op: "rename", Path: fresh, Err: err}
		}
	}
	_ = os.RemoveAll(fresh)
	return err
}

func (d *directory) fill(fresh string) error {
	if err := makeDirectory(fresh, d.store.dir); err != nil {
		return err
	}
	text, err := json.Marshal(head{Format: format, Name: d.name})
	if err == nil {
		err = makeFile(fresh+"/"+headFile, fresh, append(text, '\n'))
	}
	if err == nil {
		err = makeDirectory(fresh+"/"+recordsDir, fresh)
	}
	if err != nil {
		return err
	}
	h, err := (&directory{store: d.store, path: fresh}).open()
	if err != nil {
		return err
	}
	defer h.close()
	if err := d.store.make(h, tempPrefix+"1.0", versionName(1), (&state{}).text()); err != nil {
		return h.fault(d.store.scheme, versionName(1), err)
	}
	return nil
}

// markUsed notes that the name is in use.
func (d *directory) markUsed() error {
	path := d.path + usedSuffix
	if here, err := exists(path); err != nil || here {
		return err
	}
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err == unix.EEXIST {
		return nil
	}
	if err != nil {
		return &locks.PathError{Op: "create", Path: path, Err: err}
	}
	return unix.Close(fd)
}
