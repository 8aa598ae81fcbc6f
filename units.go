package skerry

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory or storage in bytes. It marshals to JSON as a string with the largest exact binary
// suffix ("64Mi") and accepts a plain number of bytes or a string with a suffix (k, M, G, T: powers of 1000; Ki, Mi,
// Gi, Ti: powers of 1024).
type Bytes int64

// Sizes with binary prefixes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// byteUnits are the suffixes of sizes; the first that fits counts.
var byteUnits = []struct {
	suffix string
	size   float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
}

// ParseBytes reads "512", "64Mi", "1.5G". Negative amounts are refused.
func ParseBytes(s string) (Bytes, error) {
	t := strings.TrimSuffix(strings.TrimSpace(s), "B")
	mul := 1.0
	for _, u := range byteUnits {
		if strings.HasSuffix(t, u.suffix) {
			mul, t = u.size, strings.TrimSuffix(t, u.suffix)
			break
		}
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
	if err != nil || math.IsNaN(f) {
		return 0, fmt.Errorf("%q is not an amount of bytes; write a number with an optional suffix, such as 64Mi or 2G", s)
	}
	if f < 0 {
		return 0, fmt.Errorf("%q is negative; an amount of bytes is zero or more", s)
	}
	if f*mul >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is %w", s, errTooLarge)
	}
	return Bytes(f * mul), nil
}

// String gives the shortest exact form with a binary suffix.
func (b Bytes) String() string {
	for _, u := range []struct {
		s string
		n Bytes
	}{{"Ti", TiB}, {"Gi", GiB}, {"Mi", MiB}, {"Ki", KiB}} {
		if b != 0 && b%u.n == 0 {
			return strconv.FormatInt(int64(b/u.n), 10) + u.s
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// UnmarshalJSON takes all that MarshalJSON gives, amounts below 0 too, and the nearest amount for what is too large: one odd value in an
// answer or a record must not hide all others. What people write is refused by DecodeStrict.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	s, err := b.scalar(data)
	if err != nil {
		return err
	}
	*b, err = signed(s, ParseBytes, math.MaxInt64)
	return err
}

func (*Bytes) scalar(data []byte) (string, error) {
	s, err := scalar(data)
	if err != nil {
		return "", fmt.Errorf("an amount of bytes must be a number or a string such as 64Mi, not %s", data)
	}
	return s, nil
}

func (b *Bytes) UnmarshalStrict(data []byte) error {
	s, err := b.scalar(data)
	if err == nil {
		*b, err = ParseBytes(s)
	}
	return err
}

// MilliCPU is an amount of CPU time in thousandths of one core. It marshals as a decimal number of cores ("0.25").
type MilliCPU int64

// ParseMilliCPU reads cores ("0.5", "2") or millicores ("250m"). Negative amounts are refused.
func ParseMilliCPU(s string) (MilliCPU, error) { return parseMilliCPU(s, 1e9+1) }

// parseMilliCPU refuses amounts from most on.
func parseMilliCPU(s string, most float64) (MilliCPU, error) {
	t, mul := strings.TrimSpace(s), 1000.0
	if strings.HasSuffix(t, "m") {
		t, mul = strings.TrimSuffix(t, "m"), 1
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || math.IsNaN(f) {
		return 0, fmt.Errorf("%q is not an amount of CPU; write cores such as 0.5 or millicores such as 500m", s)
	}
	if f < 0 {
		return 0, fmt.Errorf("%q is negative; an amount of CPU is zero or more", s)
	}
	if f*mul >= most {
		return 0, fmt.Errorf("%q is %w", s, errTooLarge)
	}
	return MilliCPU(math.Round(f * mul)), nil
}

// String gives the amount in cores.
func (m MilliCPU) String() string { return strconv.FormatFloat(float64(m)/1000, 'f', -1, 64) }

func (m MilliCPU) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON is as lenient as that of Bytes.
func (m *MilliCPU) UnmarshalJSON(data []byte) error {
	s, err := m.scalar(data)
	if err != nil {
		return err
	}
	*m, err = signed(s, func(s string) (MilliCPU, error) { return parseMilliCPU(s, math.MaxInt64) }, math.MaxInt64)
	return err
}

func (*MilliCPU) scalar(data []byte) (string, error) {
	s, err := scalar(data)
	if err != nil {
		return "", fmt.Errorf("an amount of CPU must be a number of cores or a string such as 250m, not %s", data)
	}
	return s, nil
}

func (m *MilliCPU) UnmarshalStrict(data []byte) error {
	s, err := m.scalar(data)
	if err == nil {
		*m, err = ParseMilliCPU(s)
	}
	return err
}

// errTooLarge is wrapped by what parses amounts.
var errTooLarge = errors.New("too large")

// signed parses an amount that may be below 0, or too large.
func signed[T ~int64](s string, parse func(string) (T, error), most T) (T, error) {
	abs, negative := strings.CutPrefix(s, "-")
	n, err := parse(abs)
	if errors.Is(err, errTooLarge) {
		n, err = most, nil
	}
	if negative {
		n = -n
	}
	return n, err
}

// scalar accepts a JSON number or string and gives its text.
func scalar(data []byte) (string, error) {
	if len(data) > 0 && data[0] == '"' {
		var s string
		err := json.Unmarshal(data, &s)
		return s, err
	}
	var n json.Number
	err := json.Unmarshal(data, &n)
	return n.String(), err
}
