package term

import "golang.org/x/sys/unix"

// Screen is the size of a terminal in characters; zero: there is no terminal.
type Screen struct{ Columns, Rows int }

// ScreenOf gives the size of the terminal behind a descriptor, 80 by 24 if the
// terminal does not know it.
func ScreenOf(fd int) Screen {
	if !IsTerminal(fd) {
		return Screen{}
	}
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return Screen{80, 24}
	}
	return Screen{int(size.Col), int(size.Row)}
}

// IsTerminal reports whether a descriptor is one.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// clearLine goes to the beginning of a terminal's line and empties it.
const clearLine = "\r\x1b[K"
