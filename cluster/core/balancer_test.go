package core

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// Moves that somebody was told of and that are not begun are said to be dropped, with the reason; what was begun is no news.
func TestRebalanceSaysWhatIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		told, begun int
		after       time.Duration // and then comes the next look
		want        string
	}{
		"all were begun":     {2, 2, time.Second, ""},
		"none was announced": {0, 0, time.Second, ""},
		"one is no gain now": {2, 1, time.Second, "1 of 2 moves to better places were not begun: no other instance"},
		"none in time":       {3, 0, time.Hour, "3 of 3 moves to better places were not begun"},
	} {
		s := newOverlayNetSite(t)
		s.join(1)
		br := s.c.balancer
		br.balance.Ask(s.now, c.told)
		for n := range c.begun {
			br.balance.Moved(skerry.InstanceID(rune('a' + n)))
		}
		s.now = s.now.Add(c.after)
		fx := s.c.Tick(s.now)
		s.keep(fx)
		said := ""
		for _, e := range fx.Events {
			if e.Reason == "RebalanceEnded" {
				said += e.Text
			}
		}
		if (said != "") != (c.want != "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: it says %q, want %q", name, said, c.want)
		}
		if told, left := br.balance.EndPass(s.now); told != 0 || left != 0 {
			t.Errorf("%s: %d moves of %d are left to be told of again, want none", name, left, told)
		}
	}
}
