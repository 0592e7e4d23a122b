package bind

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// hexAddress writes an address as /proc/net/tcp does: words of 32 bits in the
// machine's own order, a colon, the port.
func hexAddress(at netip.AddrPort) string {
	var b strings.Builder
	for bytes := at.Addr().AsSlice(); len(bytes) > 0; bytes = bytes[4:] {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(bytes))
	}
	fmt.Fprintf(&b, ":%04X", at.Port())
	return b.String()
}
