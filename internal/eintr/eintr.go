// Package eintr repeats system calls that a signal has interrupted (signal(7)).
package eintr

import "golang.org/x/sys/unix"

// Repeat makes a call until no signal interrupts it.
func Repeat(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// Get makes a call that has a result until no signal interrupts it.
func Get[T any](call func() (T, error)) (result T, err error) {
	err = Repeat(func() error {
		result, err = call()
		return err
	})
	return result, err
}
