// Package kernel is what the engines on kernel locks share: local, lockfile and bind.
package kernel

// EscapePath writes a path or name so that it can stand in a URL.
func EscapePath(path string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(path))
	for _, c := range []byte(path) {
		if c <= ' ' || c >= 0x7f || c == '%' || c == '?' || c == '#' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}
