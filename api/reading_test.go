package api

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadingGoesOn: who looks at twenty sites all day goes on being answered, however often, and the audit has them a few hundred times a
// day; who asks for ever new things is answered no more, and keeps nobody else from it.
func TestReadingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, kept := newLimits(Limits{}), 0
		for minute := range 24 * 60 {
			for _, user := range []string{"ada", "ben"} {
				for site := range 20 {
					key := fmt.Sprint(user, " list-cluster-workers site-", site)
					if !l.reads(user, key) {
						t.Fatalf("after %d minutes %s is not answered", minute, key)
					}
					if l.read(key, "") {
						kept++
					}
				}
			}
			time.Sleep(time.Minute)
		}
		if kept < 300 || kept > 2000 {
			t.Errorf("the audit has %d records", kept)
		}
		for n := range 2000 {
			l.reads("eve", fmt.Sprint("eve get-cluster-worker ", n))
		}
		if l.reads("eve", "eve get-cluster-worker last") {
			t.Error("thousands of things are read by one user")
		}
		if !l.reads("ada", "ada get-cluster-worker keeper") {
			t.Error("one user kept another from reading")
		}
	})
}
