package moves

import (
	"slices"
	"testing"
	"time"
)

func TestPartings(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := NewPartings()
	if !p.Due().IsZero() || len(p.Over(now)) > 0 {
		t.Errorf("of nothing, something is due at %v", p.Due())
	}
	p.Begin("b", now)
	p.Begin("again", now)
	p.Begin("a", now)
	p.Begin("late", now.Add(time.Second))
	p.End("again")
	if p.Has("again") || !p.Has("a") || !p.Due().Equal(now.Add(FarewellTime)) {
		t.Errorf("what is told again holds on its own; due at %v", p.Due())
	}
	if list := p.Over(now.Add(FarewellTime - 1)); len(list) > 0 {
		t.Errorf("too early: %v", list)
	}
	if list := p.Over(now.Add(FarewellTime)); !slices.Equal(list, []string{"a", "b"}) || p.Has("a") || !p.Has("late") {
		t.Errorf("over are %v", list)
	}
	if at := now.Add(time.Second + FarewellTime); !p.Due().Equal(at) {
		t.Errorf("the next is due at %v, not %v", p.Due(), at)
	}
	// With the clock set back nothing holds for longer than it should.
	if list := p.Over(now.Add(-time.Hour)); !slices.Equal(list, []string{"late"}) || !p.Due().IsZero() {
		t.Errorf("after the clock was set back: %v, due at %v", list, p.Due())
	}
}
