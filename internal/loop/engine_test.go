package loop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// scripted is a core whose messages are the effects that it gives.
type scripted struct{}

func (scripted) Step(_ time.Time, msg any) wire.Effects { return msg.(wire.Effects) }
func (scripted) Tick(time.Time) wire.Effects            { return wire.Effects{} }
func (scripted) NextWake() time.Time                    { return time.Time{} }

// diary is a host, a store and somebody who asks; it notes what happens.
type diary struct {
	notes []string
	then  func(error) // of the commit that goes on
}

func (d *diary) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func (d *diary) Record(_ time.Time, events []wire.Event) (out []wire.Write) {
	for _, e := range events {
		out = append(out, wire.Write{Key: "event/" + e.Reason, Value: []byte("1")})
	}
	return out
}
func (d *diary) Send(to string, _ wire.Message) { d.note("send %s", to) }
func (d *diary) Announce(events []wire.Event, _ []wire.Change) {
	d.note("announce %d", len(events))
}
func (d *diary) Act(action any) { d.note("act %v", action) }

func (d *diary) commit(ops []store.Op, done func(error)) {
	var b strings.Builder
	for _, op := range ops {
		if fmt.Fprintf(&b, " %s=%s", op.Key, op.Value); op.Delete {
			b.WriteString("-")
		}
	}
	d.note("commit%s", &b)
	d.then = done
}

// done ends the commit that goes on.
func (d *diary) done(err error) {
	then := d.then
	d.then = nil
	then(err)
}

func (d *diary) answer(result any, err error) { d.note("answer %v %v", result, err) }

func (d *diary) is(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(d.notes, want) {
		t.Errorf("what happened is\n  %s\nand should be\n  %s", strings.Join(d.notes, "\n  "), strings.Join(want, "\n  "))
	}
}

func put(kv ...string) (out []wire.Write) {
	for _, x := range kv {
		k, v, _ := strings.Cut(x, "=")
		w := wire.Write{Key: k}
		if v != "" {
			w.Value = []byte(v)
		}
		out = append(out, w)
	}
	return out
}

// full is a batch of two messages with all kinds of effects.
func full(e *Engine, d *diary) {
	now := time.Unix(0, 0)
	e.Step(now, wire.Effects{Writes: put("a=1", "b=1"), Sends: []wire.Outgoing{{To: "x", Msg: &wire.Report{}}}, Actions: []any{"run"}, Result: 1}, d.answer)
	e.Step(now, wire.Effects{Writes: put("a=2", "c="), Events: []wire.Event{{Reason: "e"}}, Err: errors.New("no")}, d.answer)
}

// Nothing is sent, announced, done or answered before the last commit is over, and then in this order.
func TestOrder(t *testing.T) {
	d := &diary{}
	e := NewEngine(scripted{}, d)
	e.MaxOps = 3
	full(e, d)
	e.Flush(time.Unix(0, 0), d.commit)
	want := []string{"commit b=1 a=2 c=-"}
	d.is(t, want...)
	d.done(nil)
	want = append(want, "commit event/e=1")
	d.is(t, want...)
	d.done(nil)
	want = append(want, "send x", "announce 1", "act run", "answer 1 <nil>", "answer <nil> no")
	d.is(t, want...)
	if e.Err() != nil || d.then != nil {
		t.Error("it is not done")
	}
	// What writes nothing needs no commit, and takes nothing of an earlier batch along.
	d.notes = nil
	e.Step(time.Unix(1, 0), wire.Effects{Result: 2}, d.answer)
	e.Flush(time.Unix(1, 0), d.commit)
	d.is(t, "announce 0", "answer 2 <nil>")
}

// A refused batch leaves no trace but the answers, which say how much of it may be kept.
func TestRefused(t *testing.T) {
	for _, partly := range []bool{false, true} {
		d := &diary{}
		e := NewEngine(scripted{}, d)
		e.MaxOps = 2
		full(e, d)
		var told error
		e.Step(time.Unix(0, 0), wire.Effects{}, func(_ any, err error) { told = err })
		e.Flush(time.Unix(0, 0), d.commit)
		if partly {
			d.done(nil)
		}
		d.notes = nil
		d.done(fmt.Errorf("commit: %w", store.ErrFull))
		var said *skerry.Error
		if !errors.As(told, &said) || said.Code != skerry.CodeFull || said.Hint == "" || errors.Is(told, ErrPartly) != partly || strings.Contains(told.Error(), "nothing was changed") == partly {
			t.Errorf("partly %v: %v", partly, told)
		}
		d.is(t, fmt.Sprintf("answer <nil> %v", told), fmt.Sprintf("answer <nil> %v", told))
		if !errors.Is(e.Err(), store.ErrFull) {
			t.Errorf("it goes on: %v", e.Err())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a core that is ahead of its store was stepped")
				}
			}()
			e.Tick(time.Unix(2, 0))
		}()
	}
}

func TestFull(t *testing.T) {
	for what, fx := range map[string]wire.Effects{
		"many writes": {Writes: make([]wire.Write, batchWrites)},
		"many bytes":  {Writes: []wire.Write{{Key: "a", Value: make([]byte, batchBytes)}}},
	} {
		e := NewEngine(scripted{}, &diary{})
		if e.Full() {
			t.Error("an empty batch is full")
		}
		if e.Step(time.Unix(0, 0), fx, nil); !e.Full() {
			t.Errorf("%s do not fill a batch", what)
		}
	}
	e := NewEngine(scripted{}, &diary{})
	for n := 0; !e.Full(); n++ {
		if n == batchLength {
			t.Fatal("many messages do not fill a batch")
		}
		e.Count()
	}
}

// besides is an action that may go beside a commit.
type besides string

func (besides) Beside() bool { return true }

// TestBeside: the first actions of a batch begin beside its commit if they may, and nothing overtakes one that may not. Where nothing is
// written they come in their place.
func TestBeside(t *testing.T) {
	actions := []any{besides("a"), besides("b"), "c", besides("d")}
	for _, c := range []struct {
		name    string
		writes  []wire.Write
		refused error
		want    []string
	}{
		{"written", put("k=1"), nil, []string{"act a", "act b", "commit k=1", "send x", "announce 0", "act c", "act d"}},
		{"refused", put("k=1"), store.ErrFull, []string{"act a", "act b", "commit k=1"}},
		{"nothing to write", nil, nil, []string{"send x", "announce 0", "act a", "act b", "act c", "act d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &diary{}
			e := NewEngine(scripted{}, d)
			sends := []wire.Outgoing{{To: "x", Msg: &wire.Report{}}}
			e.Step(time.Unix(0, 0), wire.Effects{Writes: c.writes, Sends: sends, Actions: actions}, nil)
			e.Flush(time.Unix(0, 0), d.commit)
			if d.then != nil {
				d.done(c.refused)
			}
			d.is(t, c.want...)
		})
	}
}
