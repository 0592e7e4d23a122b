package main

import "slices"

// shared is the title of the table of stores that several machines can share.
const shared = "Stores that several machines share"

var (
	startMetrics   = []metric{{"wall", "ms"}, {"CPU", "ms"}, {"max RSS", "MiB"}}
	handOffMetrics = []metric{{"gap", "ms"}, {"worst gap", "ms"}, {"inversions", ""}}
	burstMetrics   = []metric{{"total", "ms"}}
	waitingMetrics = []metric{{"RSS, holding", "MiB"}, {"private, holding", "MiB"},
		{"private, waiting", "MiB"}, {"wake-ups", ""}}
	queueMetrics = []metric{{"grants", "/s"}, {"gap", "ms"}, {"worst gap", "ms"}, {"server CPU", "ms"},
		{"client CPU", "ms"}, {"server CPU at rest", "ms/s"}, {"client CPU at rest", "ms/s"}}
)

// tools are rows with nothing else to say.
func tools(names ...string) (rows []row) {
	for _, name := range names {
		rows = append(rows, row{tool: name})
	}
	return rows
}

// acrossMachines are tools whose locks several machines can share.
var acrossMachines = tools("golock redis", "golock mysql", "golock postgres", "golock etcd", "golock mkdir",
	"SET NX, polling", "etcdctl lock", "etcd Lock", "GET_LOCK", "pg_advisory_lock")

// experiments is the table of cases, in the order in which they run. The cases of one machine come
// first, while no server runs. "golock" is the lean program, as packages install it; for a store on a
// server it becomes the full program.
func experiments() []experiment {
	return slices.Concat(localExperiments(), serverExperiments(), []experiment{scaleExperiment()})
}

func localExperiments() []experiment {
	return []experiment{
		{
			Name: "start", Base: "flock", Metrics: startMetrics,
			Title: "Start-up: a run of /bin/true on a free lock",
			How: "Measured from the fork to the end of the tool, on a used name. CPU time and memory include the " +
				"command.",
			rounds: 400, measure: measureStart,
			rows: append(tools("true", "flock", "flock -F", "setlock", "flock in Go",
				"golock", "golock, new name", "golock -F", "golock, full"), row{tool: "sem", every: 25}),
			bars: []bar{
				{metric: "wall", of: "golock", against: "flock", limit: 1.8, unit: "x"},
				{metric: "wall", of: "golock, full", against: "flock", limit: 2.5, unit: "x"},
				{metric: "wall", of: "golock -F", against: "flock -F", limit: 2.0, unit: "x"},
			},
		},
		{
			Name: "start-shell", Base: "flock, from bash", Metrics: startMetrics[:1],
			Title:  "Start-up from a shell",
			How:    "Measured in the same way, but started by a bash that runs a script, with a user's environment.",
			rounds: 300, measure: measureStart,
			rows: tools("flock", "flock, from bash", "golock", "golock, from bash"),
		},
		{
			Name: "burst", Base: "flock", Metrics: burstMetrics,
			Title:  "Burst: 200 at once on one lock",
			How:    "Each appends a record to a file. Total is from the first start to the last end.",
			rounds: 11, size: 200, quick: 40, measure: measureBurst(0),
			rows: tools("flock", "setlock", "flock in Go", "golock"),
			bars: []bar{{metric: "total", of: "golock", against: "flock", limit: 2.1, unit: "x"}},
		},
		{
			Name: "handoff", Base: "flock",
			Metrics: handOffMetrics, Title: "Hand-off with 100 waiting",
			How: "A gap is from the end of a command to the start of the next. An inversion is a command " +
				"that ran before another one that was ahead of it in the queue.",
			rounds: 11, size: 100, quick: 10, measure: measureHandOff,
			rows: tools("flock", "setlock", "flock in Go", "golock"),
			bars: []bar{
				{metric: "gap", of: "golock", against: "flock", limit: 1.2, unit: "x"},
				{metric: "inversions", of: "golock", worst: true},
			},
		},
	}
}

func serverExperiments() []experiment {
	return slices.Concat(waitingExperiments(), handOffExperiments(), burstExperiments(), tripExperiments())
}

func tripExperiments() []experiment {
	e := experiment{
		Name: "trips", Metrics: tripMetrics, Title: "Across a network",
		How: "Round trips to the server, counted at a proxy that delays each direction by 100 ms: the time " +
			"that a network adds, divided by that of a round trip. They are counted from the start of the tool, with " +
			"the TCP handshake and the login, to the start or the end of a command, or to the refusal. A hand-off is " +
			"from the end of a command that has held the lock for a second to the start of the one that waits. " +
			"PostgreSQL asks for a password in the row SCRAM only.",
		rounds: 3, measure: measureTrips,
		rows: tools("golock redis", "golock mysql", "golock postgres", "golock postgres, SCRAM",
			"golock etcd", "SET NX, polling", "GET_LOCK", "pg_advisory_lock", "etcdctl lock", "etcd Lock"),
	}
	for _, limits := range []struct {
		tool string
		most [5]float64 // the bars, in the order of the metrics; a metric with 0 has none
	}{
		{"golock redis", [5]float64{2, 0, 0, 0, 1}},
		{"golock mysql", [5]float64{4.6, 5.6, 7, 3.7, 2.5}},
		{"golock postgres", [5]float64{4.1, 5.1, 6.2, 3.2, 2.5}},
		{"golock etcd", [5]float64{4, 0, 0, 0, 2}},
	} {
		for i, limit := range limits.most {
			if limit > 0 {
				e.bars = append(e.bars, bar{metric: tripMetrics[i].Name, of: limits.tool, limit: limit, unit: "round trips"})
			}
		}
	}
	return []experiment{e}
}

func waitingExperiments() []experiment {
	return []experiment{
		{
			Name: "waiting", Metrics: waitingMetrics,
			Title: "Memory and wake-ups of one that holds and one that waits",
			How: "Memory is that of the tool, without its command and watchdog. Private memory is not shared with other " +
				"processes. Wake-ups are the context switches of a waiter in 3 s. Without -q, golock " +
				"wakes up to report that it waits.",
			rounds: 2, size: 3, quick: 1, measure: measureWaiting,
			rows: tools("flock", "golock -q", "golock redis -q", "golock mysql -q",
				"golock postgres -q", "etcdctl lock", "GET_LOCK", "pg_advisory_lock"),
			bars: []bar{
				{metric: "RSS, holding", of: "golock -q", limit: 5.5, unit: "MiB"},
				{metric: "wake-ups", of: "golock -q", worst: true},
			},
		},
		{
			Name: "server-start", Base: "golock",
			Metrics: startMetrics, Title: shared, Column: "start-up",
			How: "Measured as above; ratios are to golock on the local store. In a burst of 50, each " +
				"command sleeps for 5 ms: no lock can be faster than 250 ms. A network adds its round trips.",
			rounds: 120, measure: measureStart, rows: append(tools("golock"), acrossMachines...),
			bars: []bar{
				{metric: "wall", of: "golock redis", against: "golock", limit: 2.5, unit: "ms"},
				{metric: "wall", of: "golock etcd", limit: 9, unit: "ms"},
			},
		},
	}
}

func handOffExperiments() []experiment {
	return []experiment{
		{
			Name: "server-handoff-1", Base: "golock",
			Metrics: handOffMetrics[:2], Title: shared, Column: "hand-off, 1 waiting",
			rounds: 41, size: 1, measure: measureHandOff, rows: append(tools("golock"), acrossMachines...),
			bars: []bar{
				{metric: "gap", of: "golock redis", limit: 1.8, unit: "ms"},
				{metric: "gap", of: "golock mysql", against: "GET_LOCK", limit: 2.3, unit: "x"},
				{metric: "gap", of: "golock postgres", against: "pg_advisory_lock", limit: 2.2, unit: "x"},
				{metric: "gap", of: "golock etcd", limit: 4, unit: "ms"},
				{metric: "gap", of: "golock mkdir", limit: 15, unit: "ms"},
			},
		},
		{
			Name: "server-handoff-50", Base: "golock", Metrics: handOffMetrics,
			Title: shared, Column: "hand-off, 50 waiting",
			rounds: 5, size: 50, quick: 10, measure: measureHandOff,
			rows: append(tools("golock", "golock redis", "golock mysql", "GET_LOCK", "golock postgres",
				"pg_advisory_lock", "golock etcd", "etcdctl lock", "etcd Lock"), row{tool: "golock mkdir", size: 100, every: 2}),
			bars: []bar{
				{metric: "gap", of: "golock mysql", against: "GET_LOCK", limit: 3, unit: "x"},
				{metric: "gap", of: "golock postgres", against: "pg_advisory_lock", limit: 2.2, unit: "x"},
				{metric: "gap", of: "golock etcd", limit: 3.5, unit: "ms"},
				{metric: "inversions", of: "golock etcd", worst: true},
				{metric: "gap", of: "golock mkdir, 100", limit: 8, unit: "ms"},
				{metric: "worst gap", of: "golock mkdir, 100", limit: 60, unit: "ms", worst: true},
				{metric: "inversions", of: "golock redis", worst: true},
				{metric: "inversions", of: "golock mysql", worst: true},
				{metric: "inversions", of: "golock postgres", worst: true},
			},
		},
	}
}

func burstExperiments() []experiment {
	return []experiment{
		{
			Name: "server-burst", Base: "golock",
			Metrics: burstMetrics, Title: shared, Column: "burst of 50",
			rounds: 7, size: 50, quick: 10, measure: measureBurst(5),
			rows: append(tools("golock"), acrossMachines...),
			bars: []bar{
				{metric: "total", of: "golock redis", limit: 450, unit: "ms"},
				{metric: "total", of: "golock mysql", against: "GET_LOCK", limit: 1.5, unit: "x"},
				{metric: "total", of: "golock postgres", against: "pg_advisory_lock", limit: 1.4, unit: "x"},
				{metric: "total", of: "golock etcd", limit: 600, unit: "ms"},
				{metric: "total", of: "golock mkdir", against: "golock redis", limit: 1.5, unit: "x"},
			},
		},
		{
			Name: "burst-200", Base: "golock", Metrics: burstMetrics,
			Title: shared, Column: "burst of 200",
			rounds: 3, size: 200, quick: 40, measure: measureBurst(0),
			rows: tools("golock", "golock redis", "golock mysql", "golock postgres", "golock etcd", "golock mkdir"),
			bars: []bar{
				{metric: "total", of: "golock etcd", limit: 2000, unit: "ms"},
				{metric: "total", of: "golock mkdir", limit: 4000, unit: "ms"},
			},
		},
	}
}

func scaleExperiment() experiment {
	e := experiment{
		Name: "scale", Metrics: queueMetrics, Title: "Long queues",
		How: "Each waiter is a process. CPU time is in milliseconds per grant: that of the server, and that " +
			"of the waiters with their watchdogs and commands. At rest (20 s after the last grant), it is in " +
			"milliseconds per second: that of the server, and that of one waiter. The servers keep a " +
			"connection for each waiter, or for as many as `waiters=` says.",
		rounds: 3, measure: measureLine,
	}
	for _, line := range []struct {
		tool    string
		lengths []int
	}{
		{"golock -q", []int{16, 1000}}, {"golock redis -q", []int{16, 1000}},
		{"golock mysql -q", []int{16, 400, 1000}}, {"golock mysql, waiters=37 -q", []int{400}},
		{"golock postgres -q", []int{16, 400, 1000}}, {"golock postgres, waiters=25 -q", []int{400}},
		{"golock etcd -q", []int{16, 400}},
		{"golock mkdir -q", []int{16, 100}}, {"GET_LOCK", []int{16}}, {"pg_advisory_lock", []int{16}},
	} {
		for _, n := range line.lengths {
			every := map[int]int{16: 1, 100: 2, 400: 3, 1000: 3}[n]
			e.rows = append(e.rows, row{tool: line.tool, size: n, every: every})
		}
	}
	e.bars = []bar{
		{metric: "server CPU", of: "golock mysql -q, 16", limit: 2, unit: "ms"},
		{metric: "server CPU", of: "golock mysql -q, 400", against: "golock mysql -q, 16",
			limit: 1.5, unit: "x"},
		{metric: "server CPU at rest", of: "golock mysql -q, 1000", limit: 50, unit: "ms/s"},
		{metric: "server CPU", of: "golock postgres -q, 16", limit: 5, unit: "ms"},
		{metric: "server CPU", of: "golock postgres -q, 400", against: "golock postgres -q, 16",
			limit: 2, unit: "x"},
		{metric: "server CPU at rest", of: "golock postgres -q, 400", limit: 150, unit: "ms/s"},
		{metric: "client CPU at rest", of: "golock etcd -q, 400", limit: 0.1, unit: "ms/s"},
		{metric: "client CPU", of: "golock mkdir -q, 100", limit: 10, unit: "ms"},
		{metric: "client CPU at rest", of: "golock mkdir -q, 100", limit: 4, unit: "ms/s"},
	}
	return e
}
