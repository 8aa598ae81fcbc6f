package certs

import (
	"fmt"
	"testing"
	"time"
)

// TestFairOrders has two organisations with many hosts that never get a certificate use up what the site may order, hour after hour: the
// first order of a third is made as soon as the site may make one.
func TestFairOrders(t *testing.T) {
	harbour := newSite(t, Policy{})
	var wants []Want
	for i := range 50 {
		for _, org := range []string{"greedy", "hungry"} {
			wants = append(wants, want(fmt.Sprintf("h%02d.%s.example", i, org), org, uint64(len(wants)+1)))
		}
	}
	harbour.c.SetWants(wants)
	begin, asked := harbour.now, time.Time{}
	for harbour.now.Sub(begin) < 24*time.Hour {
		if harbour.now.Sub(begin) == 12*time.Hour {
			harbour.c.SetWants(append(wants, want("shop.modest.example", "modest", 1000)))
			asked = harbour.now
		}
		harbour.review()
		for len(harbour.orders) > 0 {
			if harbour.orders[0].Org == "modest" {
				if waited := harbour.now.Sub(asked); waited > window {
					t.Errorf("the first order of a third organisation: made after %v, want %v at most", waited, window)
				}
				return
			}
			harbour.done(Result{Why: "nobody answers"})
		}
		harbour.now = harbour.now.Add(time.Minute)
	}
	t.Error("the first order of a third organisation: not made in twelve hours")
}
