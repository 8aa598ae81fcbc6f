package skerry

import (
	"encoding/json"
	"math"
	"testing"
	"testing/quick"
)

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{"0": 0, "512": 512, "64Mi": 64 * MiB, "1.5Gi": 3 * GiB / 2, "2G": 2e9, "10k": 1e4, "7MiB": 7 * MiB, "3MB": 3e6} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%s: %d %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-5Mi", "x", "1Qi", "NaN", "Inf", "1e30", "1 2"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q is read as %d", in, got)
		}
	}
}

func TestParseMilliCPU(t *testing.T) {
	for in, want := range map[string]MilliCPU{"0.5": 500, "2": 2000, "250m": 250, "0.001": 1} {
		if got, err := ParseMilliCPU(in); err != nil || got != want {
			t.Errorf("%s: %d %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1m", "x", "NaN", "1e12"} {
		if got, err := ParseMilliCPU(in); err == nil {
			t.Errorf("%q is read as %d", in, got)
		}
	}
}

func TestUnitsReadBack(t *testing.T) {
	err := quick.Check(func(b uint32, shift uint8, m uint16) bool {
		x, y := Bytes(b)<<(shift%31), MilliCPU(m)
		var bx Bytes
		var my MilliCPU
		jb, _ := json.Marshal(x)
		jm, _ := json.Marshal(y)
		return json.Unmarshal(jb, &bx) == nil && json.Unmarshal(jm, &my) == nil && bx == x && my == y
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// TestOddAmountsReadBack: an amount that should not be, such as one that a worker made up, is read back from answers and records.
func TestOddAmountsReadBack(t *testing.T) {
	for _, n := range []int64{-1, -1000, -5 << 30, math.MaxInt64, math.MinInt64, 1e9 + 1, 1e15} {
		var got struct {
			B    Bytes
			M    MilliCPU
			Next string
		}
		text, _ := json.Marshal(map[string]any{"B": Bytes(n), "M": MilliCPU(n), "Next": "is read, too"})
		err := json.Unmarshal(text, &got)
		if near := func(x int64) bool { return math.Abs(float64(x)-float64(n)) <= math.Abs(float64(n))*1e-12 }; err != nil || !near(int64(got.B)) || !near(int64(got.M)) || got.Next == "" {
			t.Errorf("%d: %s becomes %+v, %v", n, text, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, ok := range []string{"a", "web", "web-1", "a23"} {
		if err := CheckName(ok); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "1a", "Web", "a_b", "a.b", "ü", "a/b", string(make([]byte, 64))} {
		if CheckName(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestFenceOrder(t *testing.T) {
	list := []Fence{{}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 5}, {2, 0, 0}}
	for i := range list {
		for j := range list {
			got := list[i].Compare(list[j])
			if i < j && got >= 0 || i > j && got <= 0 || i == j && got != 0 {
				t.Errorf("%s against %s: %d", list[i], list[j], got)
			}
		}
	}
}
