//go:build linux

package main

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestEnding leaves the end of a machine to the host where the last words may still be on their way.
func TestEnding(t *testing.T) {
	broken, over := errors.New("broken"), errors.New("over")
	for name, test := range map[string]struct {
		first  end
		socket bool
		waits  bool
	}{
		"a port":                   {end{}, false, false},
		"a socket":                 {end{}, true, true},
		"a socket that is broken":  {end{err: broken}, true, false},
		"a host that is gone":      {end{true, over}, true, false},
		"a host that speaks wrong": {end{true, over}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends, left := make(chan end, 2), make(chan error, 1)
				ends <- test.first
				go func() { left <- ending(ends, test.socket) }()
				synctest.Wait()
				if (len(left) == 0) != test.waits {
					t.Errorf("it waits for the host: %v", !test.waits)
				}
				if test.waits {
					ends <- end{true, over}
				}
				if err := <-left; err != test.first.err {
					t.Errorf("it ends with %v, not %v", err, test.first.err)
				}
			})
		})
	}
}
