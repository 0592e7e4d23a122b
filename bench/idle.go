package main

// idleness is what was spent in a window in which nothing happened.
type idleness struct {
	spent   work     // by the server
	lasted  float64  // ms in which it was
	waiters activity // all together
	watched float64  // ms in which they were: to look at a thousand processes takes its time
}

// watchIdle watches a crowd that waits, and what its server does; work is nil
// if there is none.
func (b *bench) watchIdle(c *waitingCrowd, seconds int, ask func() (work, error)) (w idleness, err error) {
	if ask == nil {
		ask = func() (w work, err error) { return w, nil }
	}
	var pids []int
	for _, p := range c.all[1:] {
		pids = append(pids, p.pid)
	}
	begun := now()
	crowd, err := activityOf(pids...)
	if err != nil {
		return w, err
	}
	before, err := ask()
	if err != nil {
		return w, err
	}
	asked := now()
	if err := b.pause(seconds); err != nil {
		return w, err
	}
	w.lasted = now() - asked
	after, err := ask()
	if err != nil {
		return w, err
	}
	w.watched = now() - begun
	crowdAfter, err := activityOf(pids...)
	w.spent, w.waiters = after.since(before), crowdAfter.since(crowd)
	return w, err
}
