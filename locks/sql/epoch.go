package sql

import (
	"fmt"
	"slices"
	"strings"
)

// checkEpoch begins a new epoch if this server is none of those on which the name was last used, or was started
// since. The server may then have forgotten the last commits, so nothing is granted until holders have had the
// time to renew. A holder whose entry is missing may come back in a new epoch. In the epoch of its last answer
// it may not: nothing was forgotten, so it has lost its slot.
func (t *step) checkEpoch() {
	// Several servers may answer at one address. The name remembers the latest ones.
	servers := strings.Fields(t.name.servers)
	server := escape(t.v.server, maxServer)
	if t.name.epoch != "" && slices.Contains(servers, server) && t.v.start <= t.name.seen {
		return
	}
	if quarantine := micros(t.store.target.Quarantine); quarantine > 0 {
		switch {
		case t.name.epoch == "" && server == t.v.tableServer && t.v.start <= t.v.tableMade:
			// No name of this table can have been forgotten.
		case t.name.epoch == "", t.v.start > t.name.seen:
			t.name.quarantine = t.v.start + quarantine
		default: // this server has run beside the other one
			t.name.quarantine = t.v.now + quarantine
		}
	}
	if t.name.epoch == "" && t.v.tableQuarantine > 0 {
		// The table was lost and made again, perhaps by somebody with a shorter lease.
		// Holders of this name are unknown until they renew.
		t.name.quarantine = max(t.name.quarantine, t.v.tableMade+micros(t.q.row.ttl))
	}
	t.name.epoch = fmt.Sprintf("%s-%d", t.q.row.ID, t.v.now)
	servers = slices.DeleteFunc(servers, func(s string) bool { return s == server })
	servers = slices.Insert(servers, 0, server)
	t.name.servers = strings.Join(servers[:min(len(servers), manyServers)], " ")
}

// quarantineEnd returns the time from which slots may be granted.
func (t *step) quarantineEnd() int64 { return max(t.name.quarantine, t.v.tableQuarantine) }
