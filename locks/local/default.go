package local

import "golang.org/x/sys/unix"

// DefaultDirectory is where New("") keeps its lock files: a directory that only
// this user may enter, the same in every context of the user's. What else the
// user's golocks must find each other by can stand there too. With create a
// missing one is made.
func DefaultDirectory(create bool) (string, error) {
	d, err := openDirectory("", systemRoots(), create)
	if err != nil {
		return "", err
	}
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
	return d.path, nil
}
