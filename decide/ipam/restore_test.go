package ipam

import (
	"net/netip"
	"testing"
	"time"
)

// A block that somebody is known to have is his again, and given to nobody else; one that another has, or that rests, is not.
func TestRestore(t *testing.T) {
	var blocks Blocks
	site := []netip.Prefix{netip.MustParsePrefix("10.64.0.0/20")}
	first, second, now := netip.MustParsePrefix("10.64.0.0/26"), netip.MustParsePrefix("10.64.0.64/26"), time.Unix(0, 0)
	if !blocks.Restore("w1", first) || blocks.Restore("w1", first) || blocks.Restore("w2", first) {
		t.Errorf("blocks = %+v, want %s of w1 alone", blocks.list, first)
	}
	if got, err := blocks.Take(now, "w2", site, nil); err != nil || got != second {
		t.Errorf("taken %s, %v; want %s", got, err, second)
	}
	blocks.Return("w2", second, now.Add(time.Hour))
	for _, bad := range []string{"10.64.0.64/26", "10.64.0.0/20", "10.64.0.130/26", "fd00::/26"} {
		if blocks.Restore("w3", netip.MustParsePrefix(bad)) {
			t.Errorf("%s is taken for a block that is free", bad)
		}
	}
}
