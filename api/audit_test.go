package api

import (
	"strings"
	"testing"
)

// The audit says what was run, whatever it is made of, and is not flooded by it.
func TestExecDetail(t *testing.T) {
	for want, c := range map[string]struct {
		container, user string
		command         []string
	}{
		"ls -l":                                 {"", "", []string{"ls", "-l"}},
		`in side: as 33: sh -c "id; cat /x"`:    {"side", "33", []string{"sh", "-c", "id; cat /x"}},
		`echo "" "\x1b[2J" "\n2026 root login"`: {"", "", []string{"echo", "", "\x1b[2J", "\n2026 root login"}},
	} {
		if got := execDetail(c.container, c.user, c.command); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := cut(strings.Repeat("ö", 1000), maxDetail); len(got) > maxDetail || !strings.HasSuffix(got, "ö…") {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-10:])
	}
}
