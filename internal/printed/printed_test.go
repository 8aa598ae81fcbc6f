package printed

import (
	"io"
	"strings"
	"testing"
)

// What is printed is bounded also where it is copied, as package exec does.
func TestBuffer(t *testing.T) {
	for _, c := range []struct {
		max, printed int
		stop         bool
		took         int64
		kept         string
		over         bool
	}{
		{5, 10_000, false, 10_000, "01234", true}, {5, 10_000, true, 5, "01234", true},
		{5, 5, true, 5, "01234", false}, {5, 0, true, 0, "", false}, {0, 1, false, 1, "", true},
	} {
		b := &Head{Max: c.max, Stop: c.stop}
		n, err := io.Copy(b, io.LimitReader(strings.NewReader(strings.Repeat("0123456789", 1000)), int64(c.printed)))
		if n != c.took || b.String() != c.kept || b.Over() != c.over || (err != nil) != (c.stop && c.over) {
			t.Errorf("%d bytes into %d: %d were taken, %q kept, too much: %v, error %v", c.printed, c.max, n, b.String(), b.Over(), err)
		}
	}
}
