package published

import (
	"fmt"
	"math"
	"strings"
)

// Problem is a figure that does not follow from the others that it must follow from, whatever was rounded away.
type Problem struct {
	Figure  *Figure `json:"figure"`
	Follows string  `json:"follows"` // what would follow, and from what
}

func (p Problem) String() string {
	f := p.Figure
	return fmt.Sprintf("%s table %s, %s, %s: %s is stated, %s", f.Document, f.Table, f.Row, f.Column, f.Words(), p.Follows)
}

// interval is what rounding leaves open.
type interval struct{ low, high float64 }

func (a interval) String() string {
	text := func(x float64) string { return fmt.Sprintf("%.5g", x) }
	if text(a.low) == text(a.high) {
		return text(a.low)
	}
	return text(a.low) + " to " + text(a.high)
}

// meets reports whether both could be the same figure.
func (a interval) meets(b interval) bool {
	const slack = 1e-9
	return min(a.high, b.high)-max(a.low, b.low) > -slack
}

func (a interval) over(b interval) interval   { return interval{a.low / b.high, a.high / b.low} } // of what is positive
func (a interval) minus(b interval) interval  { return interval{a.low - b.high, a.high - b.low} }
func (a interval) plus(b interval) interval   { return interval{a.low + b.low, a.high + b.high} }
func (a interval) times(x float64) interval   { return interval{a.low * x, a.high * x} }
func (a interval) percent() interval          { return interval{100 * (a.low - 1), 100 * (a.high - 1)} }
func (f *Figure) rounded(v *float64) interval { return interval{*v - f.half(), *v + f.half()} }
func (f *Figure) half() float64               { return 0.5 * math.Pow10(-f.digits) }
func (f *Figure) ranges() bool                { return f.Low != nil && f.High != nil }

// Bounds gives the least and the greatest that a figure may have been before it was rounded; an end that was not told is infinite, and a
// limit ("up to") was not rounded.
func (f *Figure) Bounds() (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	switch {
	case f.Value != nil:
		return *f.Value - f.half(), *f.Value + f.half()
	case f.ranges():
		return *f.Low - f.half(), *f.High + f.half()
	case f.High != nil:
		high = *f.High
	}
	return low, high
}

func (f *Figure) bounds() interval {
	low, high := f.Bounds()
	return interval{low, high}
}

// checker collects problems.
type checker struct {
	set  *Set
	list []Problem
}

func (k *checker) want(f *Figure, must interval, from string) {
	if !f.bounds().meets(must) {
		k.list = append(k.list, Problem{f, must.String() + " follows from " + from})
	}
}

// Check gives the figures that do not follow from others: overheads from what was measured, averages, what is told twice, ranges from
// the cells that they are told of, and what the tables of a document must have in common.
func (s *Set) Check() []Problem {
	k := &checker{set: s}
	for _, d := range s.Documents {
		for _, t := range d.Tables {
			k.overheads(t)
			k.means(t)
			for _, r := range t.Rows {
				k.repeats(d, r)
				k.span(d, r)
			}
		}
		switch d.ID {
		case "000":
			k.memory(d)
		case "004":
			k.thesis(d)
		}
	}
	return k.list
}

// overheads checks the columns that were worked out from others.
func (k *checker) overheads(t *Table) {
	for _, c := range t.Columns {
		if c.Of == nil {
			continue
		}
		for _, r := range t.Rows {
			f := r.Cell(c.Name)
			if f.Value == nil || r.mean {
				continue
			}
			measured, native := r.Cell(c.Of.Measured), r.Cell(c.Of.Native)
			if c.Of.Row != "" {
				native = t.Row(c.Of.Row).Cell(c.Of.Measured)
			} else if r.base != "" {
				native = t.Row(r.base).Cell(c.Of.Native)
			}
			k.want(f, overhead(measured, native, c.Of.Sign), fmt.Sprintf("%s and %s", native.Words(), measured.Words()))
		}
	}
}

// overhead works one out, in %. Of two ranges it takes the upper ends.
func overhead(measured, native *Figure, sign string) interval {
	m, n := measured.bounds(), native.bounds()
	if measured.ranges() && native.ranges() {
		m, n = measured.rounded(measured.High), native.rounded(native.High)
	}
	if measured.Better == Lower && sign != "change" {
		return n.over(m).percent()
	}
	return m.over(n).percent()
}

// means checks the averages of overheads.
func (k *checker) means(t *Table) {
	for _, r := range t.Rows {
		for _, f := range r.Cells {
			if !r.mean || f.Value == nil {
				continue
			}
			sum, n := interval{}, 0.0
			for _, o := range t.Rows {
				if x := o.Cell(f.Column); o != r && x.Value != nil {
					sum, n = sum.plus(x.bounds()), n+1
				}
			}
			k.want(f, sum.times(1/n), "the rows above")
		}
	}
}

// repeats checks a row that tells again what another cell or row has.
func (k *checker) repeats(d *Document, r *Row) {
	if r.same == "" {
		return
	}
	at := append(strings.Split(r.same, "|"), "")
	other := d.Table(at[0]).Row(at[1])
	for _, f := range r.Cells {
		o := other.Cell(or(at[2], f.Column))
		ok := f.bounds().meets(o.bounds())
		if f.ranges() && o.ranges() {
			ok = f.rounded(f.Low).meets(o.rounded(o.Low)) && f.rounded(f.High).meets(o.rounded(o.High))
		}
		if !ok {
			k.list = append(k.list, Problem{f, fmt.Sprintf("%s in table %s, %s", o.Words(), at[0], at[1])})
		}
	}
}

// span checks a range against the cells that it is told of.
func (k *checker) span(d *Document, r *Row) {
	if r.spans == nil {
		return
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, id := range r.spans.Tables {
		for _, o := range d.Table(id).Rows {
			if strings.HasSuffix(o.Name, r.spans.Rows) && o.Name != r.spans.Except {
				v := *o.Cell(r.spans.Column).Value
				low, high = min(low, v), max(high, v)
			}
		}
	}
	f := r.Cells[0]
	end := func(told *float64, is float64) bool { return told == nil || f.rounded(told).meets(interval{is, is}) }
	if !end(f.Low, low) || !end(f.High, high) {
		k.list = append(k.list, Problem{f, fmt.Sprintf("%s follows from tables %s", interval{low, high}, strings.Join(r.spans.Tables, ", "))})
	}
}

// memory checks what the tables and the prose of 000 tell of memory, and its comparison of averages.
func (k *checker) memory(d *Document) {
	told, stack, scaling := d.Table("prose"), d.Table("5"), d.Table("6")
	whole := scaling.Row("0").Cells[0].bounds()
	for _, r := range scaling.Rows[1:] {
		var n float64
		_, _ = fmt.Sscan(r.Name, &n)
		taken := whole.minus(r.Cells[0].bounds())
		k.want(r.Cells[1], taken.times(1/n), "the memory that is available")
		if r.Name == "64" {
			k.want(told.Row("memory of 64 containers").Cells[0], taken, "table 6")
		}
	}
	sum := interval{}
	for _, r := range stack.Rows[:3] {
		sum = sum.plus(r.Cells[0].bounds())
	}
	k.want(told.Row("memory of KubeEdge, EdgeMesh and cri-o").Cells[0], sum, "table 5")
	mean := d.Table("2").Row("Average")
	less := mean.Cell("RISC-V overhead").bounds().times(-1).swap().over(mean.Cell("ARM64 overhead").bounds().times(-1).swap())
	k.want(told.Row("overhead on RISC-V less than on ARM64, Phoronix").Cells[0], less.percent().times(-1).swap(), "the averages of table 2")
}

func (a interval) swap() interval { return interval{a.high, a.low} }
