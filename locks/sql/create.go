package sql

import (
	"context"
	"fmt"
	"strings"

	"golock/locks/lease"
)

// DDL is what makes the table, for an administrator to run where golock's user
// may not.
func (s *Store) DDL() string {
	return s.dialect.CreateByHand(s.table, tableValues("", 0, 0))
}

// ColumnTypes are the columns and the primary key of the table, one a line; text
// writes the type of a column of letters.
func ColumnTypes(text func(size int) string) string { return columnTypes(text) }

// QueueIndex are the columns of the index that the queue is read by.
const QueueIndex = "lock_key,state,ord,entry_id"

// tableNames are the columns that tableValues are for.
const tableNames = "lock_key,entry_id,state,server,quiet,seen,format"

// TableNames are the columns of the table's first row that Create fills.
const TableNames = tableNames

func tableValues(server string, quiet, made int64) string {
	return fmt.Sprintf("'','','%c','%s',%d,%d,%d", tableRow, escape(server, maxServer), quiet, made, format)
}

// makeName makes the row of a name. Somebody else may be quicker.
func (c *session) makeName(ctx context.Context, q *question) error {
	s := c.store
	return c.insert(ctx, fmt.Sprintf("ROLLBACK;START TRANSACTION READ WRITE;INSERT INTO %s (lock_key,entry_id,state,info) VALUES ('%s','','%c','%s');COMMIT",
		s.table, q.key, nameRow, escape(q.name, maxInfo)))
}

// makeTable makes the table at its first use. A second, empty table says that
// this has been done before: then the first has been dropped, perhaps under
// running jobs, and nothing is granted until they have noticed, or have had to
// stop.
func (c *session) makeTable(ctx context.Context, q *question) error {
	s := c.store
	c.hangUp()
	mark := s.mark()
	_, noMark := c.ask(ctx, "SELECT COUNT(*) FROM "+mark)
	if noMark != nil && s.verdict(noMark) != NoTable {
		return noMark
	}
	f, err := c.facts(ctx)
	if err != nil {
		return err
	}
	quiet := int64(0)
	if noMark == nil {
		quiet = s.quietAfterLoss(f, q)
	}
	if _, err = c.ask(ctx, s.dialect.Create(s.table, tableValues(f.server, quiet, f.now))); err != nil {
		switch s.verdict(err) {
		case Exists:
			return nil
		case NoRight:
			return &lease.Refusal{Err: fmt.Errorf("the table %s does not exist and the user may not make it: %w", s.target.table, err), Hint: "let somebody who may run: " + oneLine(s.DDL())}
		}
		return err
	}
	if err = c.makeMark(ctx, mark); err != nil {
		text := fmt.Sprintf("the table %s could not be made (%v): %s", s.markName(), err, s.unmarked())
		s.noMark.Store(&text)
	}
	return nil
}

// makeMark makes the mark. Somebody else may be quicker; something else may have its name.
func (c *session) makeMark(ctx context.Context, mark string) error {
	_, err := c.ask(ctx, c.store.dialect.CreateMark(mark))
	if err != nil && c.store.verdict(err) == Exists {
		_, err = c.ask(ctx, "SELECT COUNT(*) FROM "+mark)
	}
	return err
}

// markName is the table that says that the store's own has been made before.
func (s *Store) markName() string { return s.target.table + "_made" }

func (s *Store) mark() string { return s.dialect.Quote(s.markName()) }

// unmarked says what it means that the mark is missing.
func (s *Store) unmarked() string {
	return "if " + s.target.table + " is dropped under running jobs, others may be let in beside them"
}

// makeTableRow makes the table's own row again. Who has deleted it has most
// likely emptied the table, perhaps under running jobs.
func (c *session) makeTableRow(ctx context.Context, q *question) error {
	s := c.store
	c.hangUp()
	f, err := c.facts(ctx)
	if err != nil {
		return err
	}
	return c.insert(ctx, fmt.Sprintf("START TRANSACTION READ WRITE;INSERT INTO %s (%s) VALUES (%s);COMMIT",
		s.table, tableNames, tableValues(f.server, s.quietAfterLoss(f, q), f.now)))
}

// quietAfterLoss is until when nothing is granted in a table that has lost what
// it held.
func (s *Store) quietAfterLoss(f facts, q *question) int64 {
	return f.now + micros(max(s.target.Quarantine, q.mine.ttl))
}

// facts asks the server what it says of itself.
func (c *session) facts(ctx context.Context) (f facts, err error) {
	rows, err := c.ask(ctx, "SELECT "+c.store.dialect.Facts())
	if err != nil {
		return f, err
	}
	if len(rows) == 1 {
		f, err = readFacts(rows[0])
	}
	if err != nil {
		return f, &lease.Refusal{Err: err}
	}
	return f, nil
}

// oneLine is a statement as an error shows it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
