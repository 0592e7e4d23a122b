package etcd

import "golock/locks/network"

// This file has the answers of etcd's API, as far as golock reads them.

// header begins each answer (ResponseHeader).
type header struct {
	cluster  uint64
	member   uint64
	revision int64
}

func (h *header) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, _ []byte) error {
		switch field {
		case 1:
			h.cluster = uint64(n)
		case 2:
			h.member = uint64(n)
		case 3:
			h.revision = n
		}
		return nil
	})
}

// pair is a key with its value (KeyValue).
type pair struct {
	key, value       string
	created, changed int64 // the revisions in which the key was created, and changed last
	lease            int64 // the ID of the key's lease; 0 if it has none
}

func (p *pair) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			p.key = string(b)
		case 2:
			p.created = n
		case 3:
			p.changed = n
		case 5:
			p.value = string(b)
		case 6:
			p.lease = n
		}
		return nil
	})
}

// These constants limit the parts of an answer, because a part takes more memory than it has bytes.
const (
	maxParts   = 1 << 17 // keys or events
	maxAnswers = 16      // answers to the requests of a transaction
)

// rangeAnswer is a RangeResponse.
type rangeAnswer struct {
	pairs []pair
	more  bool // the range has more keys than the limit of the request
}

func (a *rangeAnswer) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 2:
			if len(a.pairs) == maxParts {
				return network.TooLong("more than %d keys", maxParts)
			}
			var p pair
			if err := p.read(b); err != nil {
				return err
			}
			a.pairs = append(a.pairs, p)
		case 3:
			a.more = n != 0
		}
		return nil
	})
}

// txnAnswer is a TxnResponse.
type txnAnswer struct {
	header
	succeeded bool          // all conditions were true
	answers   []rangeAnswer // the answers to the rangeRequests of the transaction, in their order
	deleted   int64         // the number of keys that the transaction has deleted
}

func (a *txnAnswer) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			return a.header.read(b)
		case 2:
			a.succeeded = n != 0
		case 3:
			return read(b, a.readAnswer)
		}
		return nil
	})
}

func (a *txnAnswer) readAnswer(field fieldNumber, _ int64, b []byte) error {
	switch field {
	case 1:
		var one rangeAnswer
		if err := one.read(b); err != nil {
			return err
		}
		if len(a.answers) == maxAnswers {
			return network.Damaged("more than %d answers", maxAnswers)
		}
		a.answers = append(a.answers, one)
	case 3:
		return read(b, func(field fieldNumber, n int64, _ []byte) error {
			if field == 2 {
				a.deleted += n
			}
			return nil
		})
	}
	return nil
}

// leaseAnswer is the answer to LeaseGrant, LeaseKeepAlive or LeaseTimeToLive.
type leaseAnswer struct {
	header
	ttl     int64 // the rest of the lease in seconds; less than 1 if there is no such lease
	granted int64 // the TTL in seconds that the lease began with; only LeaseTimeToLive answers it
}

func (a *leaseAnswer) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			return a.header.read(b)
		case 3:
			a.ttl = n
		case 4:
			a.granted = n
		}
		return nil
	})
}

// event says that a key was put or deleted.
type event struct {
	pair
	deleted bool
}

// news is a WatchResponse.
type news struct {
	header
	created, canceled bool   // the watch was made, or ended by the cluster
	compacted         int64  // the revision up to which the cluster has dropped old events, if that has ended the watch
	reason            string // why the cluster has ended the watch
	events            []event
}

func (w *news) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			return w.header.read(b)
		case 3:
			w.created = n != 0
		case 4:
			w.canceled = n != 0
		case 5:
			w.compacted = n
		case 6:
			w.reason = string(b)
		case 11:
			if len(w.events) == maxParts {
				return network.TooLong("more than %d events", maxParts)
			}
			w.events = append(w.events, event{})
			return w.events[len(w.events)-1].read(b)
		}
		return nil
	})
}

func (e *event) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			e.deleted = n != 0
		case 2:
			return e.pair.read(b)
		}
		return nil
	})
}
