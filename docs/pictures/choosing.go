package pictures

// Choosing draws the decision tree of stores: questions on the left, answers on the right.
func Choosing() string {
	questions := []struct{ question, yes, store, detail string }{
		{"Do all jobs run on one machine?", "yes", "local", "several users or containers: local:///DIR"},
		{"Must the lock survive any failover?", "yes", "etcd://", "three members; a majority decides"},
		{"Do the jobs use a database anyway?", "yes", "postgres:// or mysql://", "that database, one server less to fail"},
		{"Can you run a small server?", "yes", "redis://", "the fastest; min-replicas with replicas"},
		{"Do the hosts share a directory?", "yes", "mkdir://", "a file system without stale caches"},
	}
	d := &drawing{width: 860, height: 40 + 74*len(questions), title: "Which store: a decision tree"}
	for i, q := range questions {
		y := 20 + 74*float64(i)
		d.rect("panel", 20, y, 350, 44)
		d.text("strong", "middle", 195, y+27, q.question)
		d.lineTo("ink", 370, y+22, 430, y+22)
		d.text("small soft", "middle", 400, y+16, q.yes)
		d.rect("panel", 430, y, 410, 44)
		d.text("strong", "start", 446, y+19, q.store)
		d.text("small soft", "start", 446, y+36, q.detail)
		d.lineTo("ink", 195, y+44, 195, y+74)
		d.text("small soft", "start", 203, y+63, "no")
	}
	y := 20 + 74*float64(len(questions))
	d.text("", "middle", 195, y+14, "Nothing is shared: no lock can help.")
	return d.String()
}
