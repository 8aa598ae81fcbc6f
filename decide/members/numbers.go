package members

// Order is how a report stands to those that came before it on the same connection.
type Order int

// Orders.
const (
	Newer    Order = iota // it counts
	Late                  // it came twice, or after a newer one, which a carrier may do
	Repeated              // it was sent before
)

// enough numbers in a row, each above the last, are believed over one far ahead of them, which was broken: nothing that is sent
// would count otherwise until the connection ends.
const enough = 3

// Numbers orders the reports of one connection.
type Numbers struct {
	last uint64 // of those that count
	late uint64 // the newest of those that came late
	row  int    // how many came late in a row
}

// Take takes the number of a report. Older members send none, which is 0.
func (n *Numbers) Take(seq uint64) Order {
	switch {
	case seq == 0:
		return Newer
	case seq == n.last:
		return Late
	case seq < n.last && seq <= n.late:
		n.row = 0
		return Repeated
	case seq < n.last:
		n.late = seq
		if n.row++; n.row < enough {
			return Late
		}
	}
	*n = Numbers{last: seq}
	return Newer
}
