package local

import (
	"context"
	"errors"
	"time"
)

// visit is a walk over many lock files. Each of them can be kept shut by who may
// read it, for as long as he likes; so those that were waited for in vain use up
// the patience for all, and from then on a file is only tried.
type visit struct {
	caller context.Context
	ctx    context.Context
	hurry  context.CancelFunc
	lost   time.Duration // with files that could not be looked into
}

func newVisit(ctx context.Context) *visit {
	v := &visit{caller: ctx}
	v.ctx, v.hurry = context.WithCancel(ctx)
	return v
}

func (v *visit) end() { v.hurry() }

// to calls f for one file.
func (v *visit) to(path string, f func(context.Context) error) error {
	began := time.Now()
	err := f(v.ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) && v.caller.Err() == nil {
		err = &Error{Path: path, Err: errors.New("is being changed by somebody else, as others were for long")}
	}
	if v.lost += time.Since(began); v.lost >= gateLimit {
		v.hurry()
	}
	return err
}
