package locks

// Hooks are functions of the caller that Join and Wait call, from any goroutine. A hook that is nil is not
// called.
type Hooks struct {
	// OnConnect is called by an entry of a store with leases when a server on another host has taken a
	// connection.
	OnConnect func()

	// OnAnswer is called by an entry of a store with leases when its server has answered. From then on the
	// store counts as reachable, however slow it is.
	OnAnswer func()

	// OnPlace is called with the place in the queue whenever it becomes known; 1 is the next. At 1 or 2 it
	// is time to prepare for the grant. A plain store knows no places.
	OnPlace func(place int)

	// OnQuarantine is called with the quarantine during which the store grants nothing, or with nil when
	// there is none.
	OnQuarantine func(*QuarantineError)

	// OnObstacle is called with what is in the way if that is neither holders nor waiters
	// (BusyError.Reason), and with "" when there is nothing of the kind.
	OnObstacle func(reason string)

	// OnNewDirectory is called by Join with the path of a directory that the URL names and that Join had to
	// make: a misspelt path is another store.
	OnNewDirectory func(path string)

	// StopsSoon is called when Join or Wait gives up. It reports whether this process is about to be stopped
	// (SIGSTOP). Then Join and Wait return only when the store has been told, which may take some seconds: a
	// step left half done would hold up other entries. Otherwise they return without delay.
	StopsSoon func() bool

	// DoLater is called by Wait, when the slot is granted, with work that can be done after the start of the
	// command. The work need not be done at all: Release does it too.
	DoLater func(work func())
}

// Connected calls OnConnect.
func (h *Hooks) Connected() {
	if h.OnConnect != nil {
		h.OnConnect()
	}
}

// Answered calls OnAnswer.
func (h *Hooks) Answered() {
	if h.OnAnswer != nil {
		h.OnAnswer()
	}
}

// Place calls OnPlace.
func (h *Hooks) Place(place int) {
	if h.OnPlace != nil {
		h.OnPlace(place)
	}
}

// Quarantine calls OnQuarantine.
func (h *Hooks) Quarantine(q *QuarantineError) {
	if h.OnQuarantine != nil {
		h.OnQuarantine(q)
	}
}

// Obstacle calls OnObstacle.
func (h *Hooks) Obstacle(reason string) {
	if h.OnObstacle != nil {
		h.OnObstacle(reason)
	}
}

// NewDirectory calls OnNewDirectory.
func (h *Hooks) NewDirectory(path string) {
	if h.OnNewDirectory != nil {
		h.OnNewDirectory(path)
	}
}

// MustLeaveFirst reports whether a caller that gives up must wait until the store knows (StopsSoon).
func (h *Hooks) MustLeaveFirst() bool { return h.StopsSoon != nil && h.StopsSoon() }

// Later calls DoLater.
func (h *Hooks) Later(work func()) {
	if h.DoLater != nil {
		h.DoLater(work)
	}
}
