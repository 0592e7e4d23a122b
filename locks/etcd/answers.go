package etcd

import "golock/locks/network"

// This file has the answers of etcd's API, as far as golock reads them.

// header is what each answer begins with.
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

// pair is a key and what etcd knows of it.
type pair struct {
	key, value       string
	created, changed int64 // revisions
	lease            int64
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

// Limits of an answer's parts, whose descriptions take more memory than their bytes.
const (
	maxParts   = 1 << 17
	maxAnswers = 16
)

// found is a RangeResponse.
type found struct {
	pairs []pair
	more  bool
}

func (f *found) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 2:
			if len(f.pairs) == maxParts {
				return network.TooLong("more than %d keys", maxParts)
			}
			var p pair
			if err := p.read(b); err != nil {
				return err
			}
			f.pairs = append(f.pairs, p)
		case 3:
			f.more = n != 0
		}
		return nil
	})
}

// outcome is a TxnResponse: the answers to its questions, in their order.
type outcome struct {
	header
	succeeded bool
	answers   []found
	deleted   int64 // keys
}

func (o *outcome) read(b []byte) error {
	return read(b, func(field fieldNumber, n int64, b []byte) error {
		switch field {
		case 1:
			return o.header.read(b)
		case 2:
			o.succeeded = n != 0
		case 3:
			return read(b, o.readAnswer)
		}
		return nil
	})
}

func (o *outcome) readAnswer(field fieldNumber, _ int64, b []byte) error {
	switch field {
	case 1:
		var f found
		if err := f.read(b); err != nil {
			return err
		}
		if len(o.answers) == maxAnswers {
			return network.Damaged("more than %d answers", maxAnswers)
		}
		o.answers = append(o.answers, f)
	case 3:
		return read(b, func(field fieldNumber, n int64, _ []byte) error {
			if field == 2 {
				o.deleted += n
			}
			return nil
		})
	}
	return nil
}

// leaseAnswer is the answer to a grant, a keepalive or a question about a lease.
type leaseAnswer struct {
	header
	ttl     int64 // s; less than 1 if there is no such lease
	granted int64 // s; of a question only
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

// event is that a key was put or deleted.
type event struct {
	pair
	deleted bool
}

// news is a WatchResponse.
type news struct {
	header
	created, canceled bool
	compacted         int64
	reason            string
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
