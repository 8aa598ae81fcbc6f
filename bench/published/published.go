// Package published holds the figures of the five documents that Skerry is built from, as data: what they measured, by document, table, row
// and column, with unit and direction, so that a measurement of ours can stand beside the one that was published. It measures nothing.
// A cell that the text at hand has damaged keeps what the text reads beside what it must be by arithmetic; what is told in prose alone is a
// range with its place. Check finds the figures that do not follow from others. Any package may import it.
package published

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

//go:embed data/*.json
var files embed.FS

// Direction tells which figures are the better ones.
type Direction string

// The directions. What is neither (a size that was set, a word) has none.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// Figure is one cell of a table.
type Figure struct {
	Document string    `json:"document"` // 000 to 004
	Table    string    `json:"table"`
	Row      string    `json:"row"`
	Column   string    `json:"column"`
	Place    string    `json:"place,omitempty"` // where in the document it stands
	Unit     string    `json:"unit,omitempty"`
	Better   Direction `json:"better,omitempty"`
	// Value is nil where the cell has a range or a word.
	Value *float64 `json:"value,omitempty"`
	// Low and High are the ends of a range; what was told as "up to" has no Low. A range always has its High.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Approx is for what the document calls approximate, or almost so much.
	Approx bool `json:"approx,omitempty"`
	// Deviation is the relative standard deviation, in %.
	Deviation *float64 `json:"deviation,omitempty"`
	Text      string   `json:"text,omitempty"`
	// Damaged: the text of the document at hand reads Raw, which cannot be; Because has the arithmetic that leads to the value.
	Damaged bool   `json:"damaged,omitempty"`
	Raw     string `json:"raw,omitempty"`
	Because string `json:"because,omitempty"`
	// UnitRaw is what the text reads for the unit, where the head of the column is damaged.
	UnitRaw string `json:"unitRaw,omitempty"`

	digits int // after the point, as printed
}

// Missing is the Raw of a cell that the text at hand does not have.
const Missing = "missing"

// Empty reports whether there is nothing in the cell.
func (f *Figure) Empty() bool {
	return f.Value == nil && f.Low == nil && f.High == nil && f.Text == ""
}

// Document is one of the five.
type Document struct {
	ID     string
	Title  string
	Tables []*Table
}

// Table is a table or figure of a document, or what its prose tells.
type Table struct {
	ID      string
	About   string
	Place   string
	Columns []*Column
	Rows    []*Row
}

// Column is a column of a table. Raw and Because are for a head that is damaged in the text.
type Column struct {
	Name    string    `json:"column"`
	Unit    string    `json:"unit"`
	Better  Direction `json:"better"`
	Raw     string    `json:"raw"`
	Because string    `json:"because"`
	Of      *Overhead `json:"of"`
}

// Overhead says of a column of what others it is the overhead: of a measured and a native one, or of a measured one and one row.
type Overhead struct {
	Measured string `json:"measured"`
	Native   string `json:"native"`
	Row      string `json:"row"`
	// Sign is "change" where the document gives measured / native - 1 whatever is better. Else it is native / measured - 1 where lower is
	// better and measured / native - 1 where higher is, so that what is lost has a minus.
	Sign string `json:"sign"`
}

// Row is a row of a table, with a cell for each of its columns.
type Row struct {
	Name  string
	Cells []*Figure
	base  string // the row that has its native figures
	mean  bool   // of the rows above
	same  string // TABLE|ROW|COLUMN that it repeats
	spans *spans
}

// spans says which cells a range is told of.
type spans struct {
	Tables []string `json:"tables"`
	Rows   string   `json:"rows"` // the end of their names
	Column string   `json:"column"`
	Except string   `json:"except"` // a row
}

// Set is all that was published.
type Set struct{ Documents []*Document }

// Load reads the figures. An error is a fault of this package.
func Load() (*Set, error) {
	names, err := fs.Glob(files, "data/*.json")
	if err != nil {
		return nil, err
	}
	s := &Set{}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		d, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.Documents = append(s.Documents, d)
	}
	return s, nil
}

// Query names figures. What is empty names all.
type Query struct{ Document, Table, Row, Column string }

// Find gives the figures that a query names, in the order of the documents, without empty cells.
func (s *Set) Find(q Query) []*Figure {
	var out []*Figure
	for _, d := range s.Documents {
		for _, t := range d.Tables {
			for _, r := range t.Rows {
				for _, f := range r.Cells {
					if !f.Empty() && q.matches(f) {
						out = append(out, f)
					}
				}
			}
		}
	}
	return out
}

func (q Query) matches(f *Figure) bool {
	return (q.Document == "" || q.Document == f.Document) && (q.Table == "" || q.Table == f.Table) && (q.Row == "" || q.Row == f.Row) &&
		(q.Column == "" || q.Column == f.Column)
}

// Document gives a document by its id, or nil.
func (s *Set) Document(id string) *Document {
	return find(s.Documents, func(d *Document) bool { return d.ID == id })
}

// Table gives a table by its id, or nil.
func (d *Document) Table(id string) *Table {
	return find(d.Tables, func(t *Table) bool { return t.ID == id })
}

// Row gives a row by its name, or nil.
func (t *Table) Row(name string) *Row {
	return find(t.Rows, func(r *Row) bool { return r.Name == name })
}

// Cell gives the cell of a row in a column, or nil.
func (r *Row) Cell(column string) *Figure {
	return find(r.Cells, func(f *Figure) bool { return f.Column == column })
}

func find[T any](list []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// document is the form of a file. A cell is a number, [number, deviation], a word, null, or an object.
type document struct {
	Document string `json:"document"`
	Title    string `json:"title"`
	Tables   []struct {
		Table   string    `json:"table"`
		About   string    `json:"about"`
		Place   string    `json:"place"`
		Columns []*Column `json:"columns"`
		Rows    []struct {
			Row     string            `json:"row"`
			Unit    string            `json:"unit"`
			Better  Direction         `json:"better"`
			Place   string            `json:"place"`
			Base    string            `json:"base"`
			Average bool              `json:"average"`
			Same    string            `json:"same"`
			Spans   *spans            `json:"spans"`
			Cells   []json.RawMessage `json:"cells"`
		} `json:"rows"`
	} `json:"tables"`
}

func strict(data []byte, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func parse(data []byte) (*Document, error) {
	var in document
	if err := strict(data, &in); err != nil {
		return nil, err
	}
	d := &Document{ID: in.Document, Title: in.Title}
	for _, ti := range in.Tables {
		t := &Table{ID: ti.Table, About: ti.About, Place: ti.Place, Columns: ti.Columns}
		for _, ri := range ti.Rows {
			r := &Row{Name: ri.Row, base: ri.Base, mean: ri.Average, same: ri.Same, spans: ri.Spans}
			if len(ri.Cells) != len(t.Columns) {
				return nil, fmt.Errorf("table %s, %s: %d cells for %d columns", t.ID, r.Name, len(ri.Cells), len(t.Columns))
			}
			for n, raw := range ri.Cells {
				c := t.Columns[n]
				f := &Figure{Document: d.ID, Table: t.ID, Row: r.Name, Column: c.Name, Place: or(ri.Place, t.Place), Unit: or(c.Unit, ri.Unit),
					Better: or(c.Better, ri.Better), UnitRaw: c.Raw}
				if err := f.read(raw); err != nil {
					return nil, fmt.Errorf("table %s, %s, %s: %w", t.ID, r.Name, c.Name, err)
				}
				r.Cells = append(r.Cells, f)
			}
			t.Rows = append(t.Rows, r)
		}
		d.Tables = append(d.Tables, t)
	}
	return d, nil
}

func or[T ~string](a, b T) T {
	if a != "" {
		return a
	}
	return b
}

// read takes a cell.
func (f *Figure) read(raw json.RawMessage) error {
	switch {
	case string(raw) == "null":
		return nil
	case raw[0] == '"':
		return json.Unmarshal(raw, &f.Text)
	case raw[0] == '[':
		var pair []json.Number
		if err := json.Unmarshal(raw, &pair); err != nil || len(pair) != 2 {
			return errors.Join(err, errors.New("a pair is a number and its deviation"))
		}
		f.Value, f.Deviation = number(pair[0]), number(pair[1])
		f.digits = digits(pair[0])
		return nil
	case raw[0] == '{':
		var c struct {
			Value, Low, High, Deviation json.Number
			Approx                      bool
			Raw, Because                string
		}
		if err := strict(raw, &c); err != nil {
			return err
		}
		f.Deviation, f.Value, f.Low, f.High = number(c.Deviation), number(c.Value), number(c.Low), number(c.High)
		f.digits = max(digits(c.Value), digits(c.Low), digits(c.High))
		f.Approx, f.Raw, f.Because, f.Damaged = c.Approx, c.Raw, c.Because, c.Raw != ""
		if f.Empty() || f.High == nil && f.Low != nil || f.Damaged != (f.Because != "") {
			return errors.New("it has no value, no upper end, or no reason for being another than it reads")
		}
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	f.Value, f.digits = number(n), digits(n)
	return nil
}

func number(n json.Number) *float64 {
	v, err := n.Float64()
	if err != nil {
		return nil
	}
	return &v
}

// digits counts those after the point, which tell how far a figure was rounded.
func digits(n json.Number) int {
	_, after, _ := strings.Cut(string(n), ".")
	return len(after)
}

// Words gives a figure as people write it, without its unit: 12.5, 2-3, up to 40, about 10. It is empty for an empty cell.
func (f *Figure) Words() string {
	text := func(v *float64) string { return strconv.FormatFloat(*v, 'f', f.digits, 64) }
	about := ""
	if f.Approx {
		about = "about "
	}
	switch {
	case f.Value != nil:
		return about + text(f.Value)
	case f.ranges():
		return about + text(f.Low) + "-" + text(f.High)
	case f.High != nil:
		return "up to " + about + text(f.High)
	}
	return f.Text
}
