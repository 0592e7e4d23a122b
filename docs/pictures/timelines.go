package pictures

// Lease draws the life of a lease with the default TTL of 30 s: two renewals, an outage, the end.
func Lease() string {
	d := &drawing{width: 860, height: 344, title: "The life of a lease of 30 seconds"}
	const left, perSecond = 120.0, 12.5
	at := func(second float64) float64 { return left + second*perSecond }
	row := func(y float64, label string) { d.text("", "end", left-14, y+16, label) }

	row(56, "golock")
	for _, second := range []float64{0, 10, 20} {
		d.dot("main", at(second), 68)
	}
	d.text("small", "start", at(0)-4, 44, "slot taken")
	d.text("small", "middle", at(10), 44, "renewed")
	d.text("small", "middle", at(20), 44, "last renewal sent")
	for _, second := range []float64{30, 34, 38, 42} {
		d.text("small", "middle", at(second), 73, "✕")
	}
	d.text("small soft", "middle", at(36), 44, "renewals fail")

	row(96, "server")
	d.rect("main faint", at(0), 96, at(24)-at(0), 24)
	d.rect("bad faint", at(24), 96, at(55)-at(24), 24)
	d.text("small", "middle", at(39.5), 113, "does not answer")

	row(136, "command")
	d.rect("run", at(0), 136, at(44.7)-at(0), 24)
	d.text("onbar small", "middle", at(22), 153, "runs")
	d.rect("wait", at(44.7), 136, at(49.7)-at(44.7), 24)

	row(176, "lease")
	d.rect("other", at(0), 176, at(50)-at(0), 24)
	d.text("small", "middle", at(22), 193, "each renewal makes it last 30 s from when it was sent")

	row(216, "next run")
	d.rect("wait faint", at(12), 216, at(50)-at(12), 24)
	d.text("small", "middle", at(31), 233, "waits")
	d.rect("run", at(50), 216, at(55)-at(50), 24)
	for _, mark := range []float64{44.7, 49.7} {
		d.lineTo("ink dashed", at(mark), 130, at(mark), 278)
	}
	d.text("small", "end", at(44.7)+4, 292, "stop signal,")
	d.text("small", "end", at(44.7)+4, 307, "5 s before the deadline")
	d.text("small", "start", at(49.7)-24, 292, "deadline:")
	d.text("small", "start", at(49.7)-24, 307, "all is dead, code 79")
	d.lineTo("line", at(0), 256, at(55), 256)
	for second := 0.0; second <= 40; second += 10 {
		d.lineTo("ink", at(second), 252, at(second), 260)
		d.text("small soft", "middle", at(second), 274, seconds(second))
	}
	d.text("soft small", "start", left, 332, "The deadline is TTL - 1 % after the last renewal was sent. An outage of up to 13 s disturbs nobody.")
	return d.String()
}

// Hold draws one tick on three hosts whose clocks differ, with --hold 4m.
func Hold() string {
	d := &drawing{width: 860, height: 300, title: "One tick on three hosts with different clocks, with --hold 4m"}
	const left, perMinute = 190.0, 90.0
	at := func(minutes float64) float64 { return left + minutes*perMinute }
	hosts := []struct {
		name, clock string
		tick        float64 // when its clock shows 12:00
	}{{"host b", "40 s ahead", 1 - 40.0/60}, {"host a", "right", 1}, {"host c", "90 s behind", 1 + 90.0/60}}
	first := hosts[0].tick
	d.rect("main faint", at(first), 30, at(first+4)-at(first), 196)
	d.text("strong", "middle", at(first+2), 22, "the slot is held for 4 minutes")
	for i, host := range hosts {
		y := 48 + 60*float64(i)
		d.text("strong", "start", 20, y+14, host.name)
		d.text("small soft", "start", 20, y+31, "clock "+host.clock)
		for tick := host.tick; tick < 6.8; tick += 5 {
			d.dot("wait", at(tick), y+16)
			switch {
			case tick == first:
				d.rect("run", at(tick), y+4, perMinute, 24)
				d.text("onbar small", "middle", at(tick)+perMinute/2, y+21, "runs")
			case tick > first+4 && i == 0:
				d.rect("run", at(tick), y+4, perMinute, 24)
				d.text("onbar small", "middle", at(tick)+perMinute/2, y+21, "next tick")
			default:
				d.text("small", "start", at(tick)+12, y+21, "held: skipped")
			}
		}
	}
	d.lineTo("line", at(0), 244, at(7), 244)
	for minute, label := range []string{"11:59", "12:00", "12:01", "12:02", "12:03", "12:04", "12:05", "12:06"} {
		d.lineTo("ink", at(float64(minute)), 240, at(float64(minute)), 248)
		d.text("small soft", "middle", at(float64(minute)), 262, label)
	}
	d.text("soft small", "start", 20, 288,
		"A yellow dot: the host's clock shows 12:00 or 12:05. Without --hold host c would run the job again at 12:01:30.")
	return d.String()
}
