package config

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// homeOf returns the home directory that a password database in the form of
// passwd(5) gives the first user with that number; "" if the database, the user
// or an absolute path is missing. Package os/user is not used because it falls
// back to $HOME, and asks other databases than /etc/passwd where it is built
// with cgo.
func homeOf(uid int, passwd string) (string, error) {
	if passwd == "" {
		return "", nil
	}
	file, err := openFile(passwd)
	if isMissing(err) {
		return "", nil
	}
	unreadable := func(err error) error {
		return &Error{Source{File: passwd}, fmt.Sprintf("cannot look up the home directory of user %d: %v", uid, err)}
	}
	if err != nil {
		return "", unreadable(err)
	}
	defer file.close()

	want := strconv.Itoa(uid)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// name:password:UID:GID:GECOS:directory:shell
		fields := strings.Split(lines.Text(), ":")
		if len(fields) > 5 && fields[2] == want {
			if home := fields[5]; strings.HasPrefix(home, "/") {
				return home, nil
			}
			return "", nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", unreadable(err)
	}
	return "", nil
}
