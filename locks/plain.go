package locks

// Plain is a Store that is one lock: its URL says which, and a name is only a
// label for people. Other tools may use the same lock and know nothing of
// golock, so its kind decides what can be asked of it.
type Plain interface {
	Store

	// Lacks says what cannot be asked.
	Lacks() Lacks
}

// Lacks gives the reasons why a Plain store cannot do something, in words for
// who asks for it; "" where it can.
type Lacks struct {
	Max    string // a max above Traits.MaxUnits
	Weight string // a weight above 1
	Shared string // no max at all
}
