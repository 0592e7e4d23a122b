// Command bench measures golock beside the tools that people use for a part of
// its job, in interleaved rounds of one run on one machine. Run it in this
// directory:
//
//	go run .                    everything, at most fifteen minutes; prints the bars
//	go run . -quick             everything with few rounds: does each case run?
//	go run . -only '^(start|scale)$'
//	go run . -only trips -rows redis    round trips to a server across a network
//	go run . -out ../docs       also writes benchmarks.json, and from it the page
//	go run . -check             exit code 2 if a bar is missed
//	go run . -from ../docs/benchmarks.json -out ../docs   the page of an earlier run
//
// Everything that it starts or creates is gone when it ends, unless kill -9 ends it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	only := flag.String("only", "", "measure the cases whose names match this `regexp`")
	rows := flag.String("rows", "", "measure only the rows whose names match this `regexp`")
	quick := flag.Bool("quick", false, "two rounds and short queues, to see whether each case runs")
	golock := flag.String("golock", "", "measure this `program` instead of building one")
	from := flag.String("from", "", "read the results in this `file` instead of measuring")
	out := flag.String("out", "", "write results and page to this `directory`")
	check := flag.Bool("check", false, "end with exit code 2 if a bar is missed")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(64)
	}
	runtime.LockOSThread() // processes end with the thread that started them
	// The collector must not run while something is measured.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)

	var r results
	err := try(func() {
		if *from != "" {
			r = readResults(*from)
		} else {
			r = measure(*golock, *only, *rows, *quick)
		}
		if *out != "" {
			r.writeAll(*out)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	for _, c := range r.Cases {
		for _, b := range c.Bars {
			if b.Measured != nil || !r.Quick {
				fmt.Println(b)
			}
		}
	}
	if missed := r.missed(); *check && len(missed) > 0 {
		fmt.Fprintf(os.Stderr, "bench: %d bars are missed\n", len(missed))
		os.Exit(2)
	}
}

// measure runs the chosen cases and prints each table when it is there.
func measure(golock, only, rows string, quick bool) results {
	ofCases, ofRows := get(regexp.Compile(only)), get(regexp.Compile(rows))
	begun := time.Now()
	b := newBench(golock)
	defer b.close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	go func() {
		<-signals
		b.interrupt()
	}()

	date := begun.UTC().Format("2006-01-02 15:04 UTC")
	r := results{Format: resultsFormat, Date: date, Quick: quick, Machine: b.machine()}
	b.quick = quick
	for _, e := range experiments() {
		if !ofCases.MatchString(e.Name) {
			continue
		}
		e.rows = slices.DeleteFunc(e.rows, func(r row) bool { return !ofRows.MatchString(r.label()) })
		c := b.measure(e)
		fmt.Println(section([]outcome{c}))
		r.Cases = append(r.Cases, c)
	}
	r.Minutes = rounded(time.Since(begun).Minutes())
	if !quick && only == "" && rows == "" {
		last := &r.Cases[len(r.Cases)-1]
		last.Bars = append(last.Bars, barJSON{"the whole run", 15, "minutes", &r.Minutes})
	}
	return r
}
