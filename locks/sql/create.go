package sql

import (
	"context"
	"fmt"
	"strings"

	"golock/locks/lease"
)

// tableText makes the table without its first row.
func (s *Store) tableText() string {
	ofEntry := fmt.Sprintf("state:1 ord:%d ends due ttl weight max_units fence since hold conn"+
		" replaces:16 slots:%d evicted:%d info:%d login:%d", orderSize, maxSlots, maxEvicted, maxInfo, maxLogin)
	ofName := fmt.Sprintf("name:%d epoch:64 low:%d counter seen turn moved late", maxInfo, orderSize)
	ofNameAndTable := fmt.Sprintf("servers:%d quiet", manyServers*(maxServer+1))
	const ofTable = "format made"
	all := strings.Join([]string{"lock_key:32 entry_id:32", ofEntry, ofName, ofNameAndTable, ofTable}, " ")
	lines := ""
	for column := range strings.FieldsSeq(all) {
		kind := "BIGINT NOT NULL DEFAULT 0"
		name, size, isText := strings.Cut(column, ":")
		if isText {
			kind = strings.Replace(s.dialect.Text, "%d", size, 1)
		}
		lines += "  " + name + " " + kind + ",\n"
	}
	return fmt.Sprintf(s.dialect.Table, s.table, lines+"  PRIMARY KEY (lock_key, entry_id)", "lock_key,state,ord,entry_id")
}

// firstRow selects the values of the table's first row.
func firstRow(server string, quarantine, made int64) string {
	return fmt.Sprintf("SELECT '' AS lock_key,'' AS entry_id,'%c' AS state,'%s' AS servers,%d AS quiet,%d AS made,"+
		"%d AS format", tableRow, escape(server, maxServer), quarantine, made, format)
}

func (s *Store) insertFirst(row string) string {
	return "INSERT INTO " + s.table + " (lock_key,entry_id,state,servers,quiet,made,format) " + row
}

// DDL returns the statements that make the table. An administrator runs them where golock's user may not.
func (s *Store) DDL() string {
	const noServer, noQuarantine, notMade = "", 0, 0
	return s.tableText() + ";\n" + s.insertFirst(firstRow(noServer, noQuarantine, notMade)) + ";"
}

// write runs a text that writes outside a step. If what the text makes exists already, isMade is false and err is
// nil.
func (c *session) write(ctx context.Context, text string) (isMade bool, err error) {
	_, err = c.ask(ctx, "ROLLBACK;"+c.store.dialect.Single+text)
	if c.store.kindOf(err) == Exists {
		return false, nil
	}
	return err == nil, err
}

// makeName makes the row of a name, unless somebody else was quicker.
func (c *session) makeName(ctx context.Context, q *question) (isMade bool, err error) {
	return c.write(ctx, fmt.Sprintf("INSERT INTO %s (lock_key,entry_id,state,name) VALUES ('%s','','%c','%s')",
		c.store.table, q.key, nameRow, escape(q.name, maxInfo)))
}

// newFirstRow selects the values for a first row that is made now. isLost says that the table was there before,
// and has lost its rows, perhaps under running jobs. Then nothing is granted until these have renewed or had to
// stop.
func (c *session) newFirstRow(ctx context.Context, q *question, isLost bool) (string, error) {
	f, err := c.askFacts(ctx)
	if err != nil {
		return "", err
	}
	quarantine := int64(0)
	if isLost {
		quarantine = f.now + micros(max(c.store.target.Quarantine, q.row.ttl))
	}
	return firstRow(f.server, quarantine, f.now), nil
}

// makeTableRow makes the table's own row again. Somebody has deleted it, most likely with all others.
func (c *session) makeTableRow(ctx context.Context, q *question) (isMade bool, err error) {
	const isLost = true
	row, err := c.newFirstRow(ctx, q, isLost)
	if err != nil {
		return false, err
	}
	return c.write(ctx, c.store.insertFirst(row))
}

// makeTable makes the table, and a second, empty one: the mark. If the mark exists already, this is not the first
// use: somebody has dropped the table.
func (c *session) makeTable(ctx context.Context, q *question) (isMade bool, err error) {
	s := c.store
	_, err = c.ask(ctx, s.markCheck(), oneNumber)
	if err != nil && s.kindOf(err) != NoTable {
		return false, err
	}
	isLost := err == nil
	row, err := c.newFirstRow(ctx, q, isLost)
	if err != nil {
		return false, err
	}
	text := s.tableText() + ";" + s.insertFirst(row)
	if s.dialect.CreateAsSelect {
		text = s.tableText() + " AS " + row
	}
	isMade, err = c.write(ctx, text)
	switch {
	case s.kindOf(err) == NoRight:
		return false, &lease.Refusal{
			Kind: q.refusalKind(),
			Err:  fmt.Errorf("the table %s does not exist and the user may not make it: %w", s.target.table, err),
			Hint: "let somebody who may run: " + strings.Join(strings.Fields(s.DDL()), " "),
		}
	case err != nil:
		return false, err
	}
	c.makeMark(ctx)
	return isMade, nil
}

// makeMark makes the mark. If that fails, a warning says so.
func (c *session) makeMark(ctx context.Context) {
	s := c.store
	_, err := c.write(ctx, "CREATE TABLE IF NOT EXISTS "+s.quote(s.markName())+" (made BIGINT PRIMARY KEY)")
	if err == nil { // what has the name may be no table that can be read
		_, err = c.ask(ctx, s.markCheck(), oneNumber)
	}
	if err != nil {
		text := fmt.Sprintf("the table %s could not be made (%v): %s", s.markName(), err, s.unmarked())
		s.noMark.Store(&text)
	}
}

// markName is the name of the table that shows that golock's table has been made before.
func (s *Store) markName() string { return s.target.table + "_made" }

// markCheck returns the statement that fails if the mark does not exist.
func (s *Store) markCheck() string { return "SELECT COUNT(*) FROM " + s.quote(s.markName()) }

// unmarked returns, for the user, what can happen if the mark is missing.
func (s *Store) unmarked() string {
	return "if " + s.target.table + " is dropped under running jobs, others may be let in beside them"
}

// askFacts asks the server what it says of itself.
func (c *session) askFacts(ctx context.Context) (facts, error) {
	answers, err := c.ask(ctx, "SELECT "+c.store.factColumns(), shape{factCount, 1})
	if err != nil {
		return facts{}, err
	}
	f, err := readFacts(answers[0][0])
	if err == nil {
		c.observe(&f)
	}
	return f, err
}
