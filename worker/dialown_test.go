//go:build linux

package worker

import (
	"slices"
	"strings"
	"testing"
)

const socketTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1 0000000000000000 100 0 0 10 0
   2: 0200007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 103 1 0000000000000000 100 0 0 10 0
   3: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 104 1 0000000000000000 100 0 0 10 0
   4: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105 1 0000000000000000 100 0 0 10 0
   5: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 106 1 0 100 0 0 10 0
   6: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 107 1 0 100 0 0 10 0
   7: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 108 1 0 100 0 0 10 0
`

// Those that a connection to 127.0.0.1:8080 may end up at.
func TestListeners(t *testing.T) {
	var got []string
	if err := listeners(strings.NewReader(socketTable), 8080, func(inode string) { got = append(got, inode) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"101", "102", "106", "107"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for groups, want := range map[string]bool{
		"0::/skerry/web-r1.main.1\n": true, "4:memory:/skerry/web-r1.main.1/sub\n0::/\n": true, "0::/skerry/web-r1.main.10\n": false, "0::/\n": false, "web-r1.main.1": false,
	} {
		if inGroup(groups, "web-r1.main.1") != want {
			t.Errorf("%q: %v", groups, !want)
		}
	}
}
