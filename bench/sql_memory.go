package main

// sqlMemory looks at what golock and its guard occupy while the command runs
// and while it waits.
func (b *bench) sqlMemory(kind sqlKind) error {
	d, err := b.startDatabase(kind, false)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.used(); err != nil {
		return err
	}
	s, err := b.memoryOf(b.plan.sql.memory, d.golock(), d.golock("--on-lost", "warn"), kind.session(d))
	if err != nil {
		return err
	}
	s.title = kind.title() + ", memory of the wrapper"
	s.notes = append(s.notes, kind.sessionNote())
	b.sections = append(b.sections, s)
	return nil
}
