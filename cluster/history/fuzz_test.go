package history

import (
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// FuzzFile: whatever is in the file, it is read without harm, within the bounds of what is kept, and what is then written is read the same.
// The body alone is the input, beside one that is a whole file: no fuzzer finds a checksum.
func FuzzFile(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, body bool) {
		if body {
			var b block
			if cbor.Unmarshal(data, &b) != nil {
				return
			}
			sealed, err := seal(&b)
			if err != nil {
				t.Fatal(err)
			}
			data = sealed
		}
		h := readBack(data)
		if len(h.series) > maxSeries {
			t.Fatalf("got %d series, want at most %d", len(h.series), maxSeries)
		}
		for name, s := range h.series {
			if len(s.points) > maxPoints+slack {
				t.Fatalf("got %d points of %q, want at most %d", len(s.points), name, maxPoints+slack)
			}
			if len(s.points) > 0 {
				now := time.Unix(int64(s.points[0].minute)*60, 0)
				if got := len(h.Show(name, now, Span, Every)); got == 0 || got > maxPoints {
					t.Fatalf("got %d points shown of %q at %v, want 1 to %d", got, name, now, maxPoints)
				}
			}
			again := unpack(pack(s.points))
			if len(again) != len(s.points) {
				t.Fatalf("got %d points of %q back, want %d", len(again), name, len(s.points))
			}
			for i := range again {
				if again[i] != s.points[i] {
					t.Fatalf("got point %+v back, want %+v", again[i], s.points[i])
				}
			}
		}
	})
}
