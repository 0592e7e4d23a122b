package main

import "fmt"

// redisStart compares what one uncontended run of /bin/true costs on the
// machine and on a Redis server, and counts what it asks the server.
func (b *bench) redisStart() error {
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	rows := []*starter{
		{tool: b.tools["golock"]},
		{tool: srv.golock(b)},
		{tool: srv.golock(b, "--on-lost", "warn")},
		{tool: srv.poll(b)},
	}
	for _, r := range rows {
		r.base = rows[0].name
	}
	if err := b.startAll(b.plan.redis.start, rows); err != nil {
		return err
	}
	s := section{
		title: "Redis, start-up: a run of /bin/true",
		how: "As above, with the store on a Redis server on loopback, without TLS. With `--on-lost warn` the command has " +
			"no guard, the process that ends it when the lease is lost, also if golock is killed.",
		head: append([]string{}, startHead...),
	}
	s.head = append(s.head, "beyond local ms")
	for _, r := range rows {
		s.rows = append(s.rows, append(r.cells(rows[0]), ms(r.wall.beyond(rows[0].wall))))
		b.noteRatio("redis-start", r.tool, r.wall, rows[0].name, rows[0].wall)
		if r != rows[0] {
			b.plot("start-up", "locks on a server, on loopback", r.tool, r.wall.values())
		}
	}
	s.notes = append(s.notes, pollNote)
	b.sections = append(b.sections, s)
	b.target("redis: start-up of `run -- true`, beyond the local store", 2.5, 0, " ms", rows[1].wall.beyond(rows[0].wall))
	return b.redisTrips(srv)
}

// redisTrips counts what a run sends to the server until its command runs.
func (b *bench) redisTrips(srv *server) error {
	type row struct {
		*tool
		hello, scripts, set, trips, whole []float64
	}
	rows := []*row{{tool: srv.golock(b)}, {tool: srv.poll(b)}}
	for _, r := range rows {
		for range b.plan.redis.trips {
			l, err := b.place("trips")
			if err != nil {
				return err
			}
			before, err := srv.usage()
			if err != nil {
				return err
			}
			h, err := b.hold(r.tool, l)
			if err != nil {
				return err
			}
			after, err := srv.usage() // within 100 ms, or golock begins to listen
			if err != nil {
				return err
			}
			h.release()
			if _, err := h.succeed(); err != nil {
				return err
			}
			end, err := srv.usage()
			if err != nil {
				return err
			}
			u := after.since(before)
			r.hello = append(r.hello, float64(u.calls["hello"]))
			r.scripts = append(r.scripts, float64(u.scripts()))
			r.set = append(r.set, float64(u.calls["set"]))
			r.trips = append(r.trips, float64(u.reads))
			r.whole = append(r.whole, float64(end.since(before).asked()))
		}
	}
	s := section{
		title: "Redis, round trips to acquire",
		how: "On a fresh connection to a server that knows the script: what INFO commandstats counts from before the start " +
			"until the command runs, and how often the server read from a connection in that time (a request that was sent in " +
			"two pieces or was refused counts too). The whole run has the release as well. Medians.",
		head: []string{"tool", "runs", "HELLO", "scripts", "SET", "reads", "commands of the whole run"},
	}
	for _, r := range rows {
		cells := []string{r.name, count(len(r.trips))}
		for _, sample := range [][]float64{r.hello, r.scripts, r.set, r.trips, r.whole} {
			cells = append(cells, fmt.Sprintf("%g", median(sample)))
		}
		s.rows = append(s.rows, cells)
	}
	b.sections = append(b.sections, s)
	b.note("redis-start: golock run, redis, commands of the whole run", "", rows[0].whole)
	b.note("redis-start: golock run, redis, round trips to acquire", "", []float64{median(rows[0].hello) + median(rows[0].scripts)})
	b.target("redis: round trips to acquire, HELLO and scripts", 2, 0, "", median(rows[0].hello)+median(rows[0].scripts))
	return nil
}
