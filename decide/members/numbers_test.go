package members

import "testing"

func TestNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		seqs []uint64
		want []Order
	}{
		"in order":                {[]uint64{1, 2, 5}, []Order{Newer, Newer, Newer}},
		"twice":                   {[]uint64{1, 2, 2, 2, 3}, []Order{Newer, Newer, Late, Late, Newer}},
		"none":                    {[]uint64{0, 0, 7, 0}, []Order{Newer, Newer, Newer, Newer}},
		"a late one":              {[]uint64{5, 3, 6, 3, 4, 7}, []Order{Newer, Late, Newer, Late, Late, Newer}},
		"sent again":              {[]uint64{5, 3, 3, 2, 1, 6}, []Order{Newer, Late, Repeated, Repeated, Repeated, Newer}},
		"after a broken one":      {[]uint64{1, 900, 2, 3, 4, 5, 900}, []Order{Newer, Newer, Late, Late, Newer, Newer, Newer}},
		"no row":                  {[]uint64{900, 2, 3, 3, 4, 5, 6}, []Order{Newer, Late, Late, Repeated, Late, Late, Newer}},
		"the greatest that is so": {[]uint64{1<<64 - 1, 2, 3, 4}, []Order{Newer, Late, Late, Newer}},
	} {
		var n Numbers
		for i, seq := range c.seqs {
			if got := n.Take(seq); got != c.want[i] {
				t.Errorf("%s: number %d, after %v, is taken as %d, want %d", name, seq, c.seqs[:i], got, c.want[i])
			}
		}
	}
}
