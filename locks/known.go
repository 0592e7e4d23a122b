package locks

// KnownStore is a store with its abilities. A caller that opens a store asks for its abilities once, and
// passes them on in a KnownStore.
type KnownStore struct {
	Store
	Can Abilities

	// A store is one of these three kinds.
	IsPlain      bool // it is one kernel lock, which its URL names; it has no queue
	IsLocalQueue bool // its grants last as long as their holders live, and a signal tells of an eviction
	IsNetworked  bool // its grants expire, and other hosts see what a run publishes
}

// Know asks a store for its abilities.
func Know(s Store) KnownStore {
	can := s.Abilities()
	hasQueue, hasLeases := can.Queue != nil, can.Leases != nil
	return KnownStore{
		Store: s, Can: can,
		IsPlain: !hasQueue, IsLocalQueue: hasQueue && !hasLeases, IsNetworked: hasLeases,
	}
}
