package bind

// escape writes a name or path so that it can stand in a URL.
func escape(name string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c <= ' ' || c >= 0x7f || c == '%' || c == '?' || c == '#':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return string(b)
}
