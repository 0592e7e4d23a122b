// Package passwd looks up users and groups. It reads /etc/passwd and /etc/group itself, and asks
// getent(1) for entries that these files lack. LDAP, SSSD and systemd-homed are modules of the C
// library (nsswitch.conf(5)), which a static program cannot load. Package os/user would believe
// $USER and $HOME instead.
package passwd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golock/internal/procfs"
)

// User is an entry of the password database.
type User struct {
	Name  string
	Group int    // ID of the primary group
	Home  string // the home directory as the database has it: it may be empty or relative
}

// Group is an entry of the group database.
type Group struct {
	Name    string
	Members []string // names of the users in the entry, which may lack users with this primary group
}

// ErrUnknown says that no database has an entry for the ID.
var ErrUnknown = errors.New("is not in the password database")

// Databases says where users and groups are looked up.
type Databases struct {
	Passwd string   // the file of passwd(5)
	Group  string   // the file of group(5)
	Getent []string // paths where getent(1) may be; the first that exists is executed
}

// Host returns the databases of this host. Environment variables do not change them.
func Host() Databases {
	return Databases{
		Passwd: "/etc/passwd", Group: "/etc/group",
		Getent: []string{"/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"}, // the last path exists on NixOS
	}
}

// Name returns the name of a user of this host. It returns "" if the user has no name, or if the
// lookup fails.
func Name(uid int) string {
	user, err := Host().User(uid)
	if err != nil {
		return ""
	}
	return user.Name
}

// User finds a user. ErrUnknown says that there is no such user. After any other error it is not
// known whether the user exists.
func (d Databases) User(uid int) (User, error) {
	fields, err := d.find(d.Passwd, "passwd", uid, 6)
	if err != nil {
		return User{}, err
	}
	// name:password:UID:GID:GECOS:directory:shell
	group, err := strconv.Atoi(fields[3])
	if err != nil {
		group = -1
	}
	return User{Name: fields[0], Group: group, Home: fields[5]}, nil
}

// GroupOf finds a group by its ID. Its errors mean what they mean for [Databases.User].
func (d Databases) GroupOf(gid int) (Group, error) {
	fields, err := d.find(d.Group, "group", gid, 4)
	if err != nil {
		return Group{}, err
	}
	// name:password:GID:member,member
	group := Group{Name: fields[0]}
	for name := range strings.SplitSeq(fields[3], ",") {
		if name != "" {
			group.Members = append(group.Members, name)
		}
	}
	return group, nil
}

// PrimaryUsers lists the names of the users whose primary group is gid. It knows the users in the
// file and those that getent enumerates.
func (d Databases) PrimaryUsers(gid int) (names []string, err error) {
	text, err := readFile(d.Passwd)
	if err != nil {
		return nil, err
	}
	more, err := d.ask("passwd")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text + "\n" + more) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) >= 6 && fields[3] == strconv.Itoa(gid) {
			names = append(names, fields[0])
		}
	}
	return names, nil
}

// find returns the fields of the line for an ID. It looks in the file first, then asks getent. A line
// with fewer than minFields fields is malformed and does not count.
func (d Databases) find(file, database string, id, minFields int) ([]string, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if fields := fieldsOf(text, id, minFields); fields != nil {
		return fields, nil
	}
	text, err = d.ask(database, strconv.Itoa(id))
	if err != nil {
		return nil, err
	}
	if fields := fieldsOf(text, id, minFields); fields != nil {
		return fields, nil
	}
	return nil, ErrUnknown
}

// fieldsOf returns the fields of the line of a database text whose third field is the ID.
func fieldsOf(text string, id, minFields int) []string {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) >= minFields && fields[2] == strconv.Itoa(id) {
			return fields
		}
	}
	return nil
}

// readFile reads a database. A missing file is an empty database.
func readFile(path string) (string, error) {
	text, err := procfs.Read(path, 8192)
	if err == syscall.ENOENT || err == syscall.ENOTDIR {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return text, nil
}

// getentLimit limits the time of getent. The timeouts of a directory service that is down may be much
// longer.
const getentLimit = 10 * time.Second

// notFound is getent's exit status if a key is not in the database.
const notFound = 2

// ask returns the lines of a database that getent prints for the keys, or without keys all lines that
// getent enumerates. On a host without getent it returns "": the files are the only database then.
func (d Databases) ask(database string, keys ...string) (lines string, err error) {
	words := append([]string{database}, keys...)
	for _, path := range d.Getent {
		lines, err = runGetent(path, words)
		if err == nil {
			return lines, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("getent %s: %w", strings.Join(words, " "), err)
		}
	}
	return "", nil
}

func runGetent(path string, words []string) (lines string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), getentLimit)
	defer cancel()
	getent := exec.CommandContext(ctx, path, words...)
	getent.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	getent.Dir = "/"
	getent.WaitDelay = time.Second // without it Run would wait for a descendant of getent that keeps a pipe open
	var output, complaint bytes.Buffer
	getent.Stdout = &output
	getent.Stderr = &complaint
	err = getent.Run()
	var exit *exec.ExitError
	isNotFound := errors.As(err, &exit) && exit.ExitCode() == notFound
	switch {
	case err == nil, isNotFound:
		return output.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("it has not answered for %v", getentLimit)
	case complaint.Len() > 0:
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return "", err
}
