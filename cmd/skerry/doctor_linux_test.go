package main

import "testing"

func TestNeighbourTable(t *testing.T) {
	const two = `entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls
00000401 000018b3 00001da0 00000006   0002969d 00012979 00000094   00000000         00000000         000004fd         00000002       00000000            00000001
00000401 0000172a 0000123b 00000002   0001fc63 0000b7dc 000000d3   00000000         00000000         00000000         0000000c       00000000            0000000a
`
	for text, want := range map[string][2]int{two: {1025, 11}, "": {}, "entries\n\nzz 5 5\n": {}} {
		if used, full := neighbourTable(text); used != want[0] || full != want[1] {
			t.Errorf("%q: %d, %d", text, used, full)
		}
	}
}
