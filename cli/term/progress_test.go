package term

import (
	"os"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/runner"
)

func TestWaitingText(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.Local)
	here, _ := os.Hostname()
	holder := locks.Entry{State: locks.Holding, PID: 4711, Host: here, Command: []string{"rsync", "-a\x1b[2J"}, Since: now.Add(-192 * time.Second), HasAge: true}
	there := holder
	there.Host, there.Orphaned, there.Command = "far\a", true, nil
	hidden := locks.Entry{State: locks.Holding}
	ended := locks.Entry{State: locks.Holding, PID: 1, Ended: true, HeldTill: now}
	unkept := locks.Entry{State: locks.Holding, Unkept: true, PID: 1, Host: "h", User: "root", Note: "upgrade", HasAge: true, Since: now, Expires: time.Hour}
	longHold := unkept
	longHold.HeldTill = now.Add(2 * time.Hour)
	for _, c := range []struct {
		w    runner.WaitProgress
		want string
	}{
		{runner.WaitProgress{Name: "a", Began: now}, `waiting for "a"`},
		{runner.WaitProgress{Name: "a", Began: now, Place: 1}, `waiting for "a": next in line`},
		{runner.WaitProgress{Name: "a", Began: now.Add(-72 * time.Second), Place: 2, Holders: []locks.Entry{holder}}, `waiting for "a" for 1m12s: 2nd in line, held by pid 4711 (rsync -a�[2J) for 3m12s`},
		{runner.WaitProgress{Name: "a", Began: now, Holders: []locks.Entry{there, hidden, holder}}, `waiting for "a": held by what pid 4711 left running on far� for 3m12s and 2 more`},
		{runner.WaitProgress{Name: "a", Began: now, Holders: []locks.Entry{hidden}}, `waiting for "a": held by a process that cannot be seen`},
		{runner.WaitProgress{Name: "a", Began: now, Place: 3, Problem: "redis://h cannot be reached"}, `waiting for "a": 3rd in line, redis://h cannot be reached`},
		{runner.WaitProgress{Name: "a", Began: now, Pause: "the server has restarted"}, `waiting for "a": the server has restarted`},
		{runner.WaitProgress{Name: "a", Began: now, Place: 111, Holders: []locks.Entry{ended}}, `waiting for "a": 111th in line, held by pid 1 until ` + locks.ClockTime(now) + `, which has ended`},
		{runner.WaitProgress{Name: "a", Began: now, Until: now, Holders: []locks.Entry{unkept}}, `waiting for "a": held by root@h without a process until ` + locks.ClockTime(now.Add(time.Hour).Round(time.Second)) + `, note "upgrade"`},
		{runner.WaitProgress{Name: "a", Began: now, Holders: []locks.Entry{longHold}}, `waiting for "a": held by root@h without a process until ` + locks.ClockTime(now.Add(2*time.Hour)) + `, note "upgrade"`},
	} {
		if got := waitingText(&c.w, now, 0); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
	w := runner.WaitProgress{Name: "backup", Began: now.Add(-72 * time.Second), Place: 2, Holders: []locks.Entry{holder}}
	w.Holders[0].Command = []string{"rsync", "-a", "/srv", "/mnt/backup"}
	for width := 60; width <= 120; width++ {
		got := waitingText(&w, now, width)
		if width >= 71 && (Width(got) > width || !strings.HasSuffix(got, " for 3m12s")) {
			t.Errorf("in %d columns: %q", width, got)
		}
		if width == 120 && !strings.Contains(got, "(rsync -a /srv /mnt/backup)") {
			t.Errorf("cut though there is room: %q", got)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59900 * time.Millisecond: "59s", time.Hour: "1h00m", 25*time.Hour + time.Minute: "1d01h"} {
		if got := spanText(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// The first line comes after one second. Each pause is twice the one before, up to an hour. The
// service manager gets a message each minute meanwhile.
func TestPace(t *testing.T) {
	for _, p := range []Pace{{Lines: true}, {Lines: true, Notify: true}, {Notify: true}} {
		lines := 0
		waits := p.OnProgress(func(w *runner.WaitProgress, line bool) {
			if line {
				lines++
			}
		})
		w := &runner.WaitProgress{}
		began := time.Now()
		waits(w)
		for range 400 {
			p.nextLine = began // the next line is due
			before := p.pause
			again := waits(w)
			if p.pause != min(2*before, longestPause) {
				t.Fatalf("a pause of %v after %v", p.pause, before)
			}
			if p.Notify && again > statusPeriod {
				t.Fatalf("the manager is told after %v", again)
			}
			if !p.Notify && again < p.pause-time.Second {
				t.Fatalf("told again after %v, the pause being %v", again, p.pause)
			}
		}
		if want := map[bool]int{true: 400, false: 0}[p.Lines]; lines != want {
			t.Errorf("%d lines, want %d", lines, want)
		}
		if p.pause != time.Hour {
			t.Errorf("in the end a pause of %v", p.pause)
		}
	}
	if nobody := (&Pace{}).OnProgress(nil); nobody != nil {
		t.Error("a run is to tell nobody of its waiting")
	}
}
