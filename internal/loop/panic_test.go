package loop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// brittle is a core that counts what it takes and panics on a bomb, half way through.
type brittle struct{ n int }

type bomb struct {
	From string
	N    int
	Map  map[string]*int
}

func (b *bomb) Sender() string { return b.From }

type asked struct{ list []int }

func (b *brittle) Step(_ time.Time, msg any) wire.Effects {
	b.n++
	switch m := msg.(type) {
	case *bomb:
		panic("bomb")
	case asked:
		m.list[0]++ // as setting defaults changes a manifest in place
		panic("asked")
	}
	return wire.Effects{Writes: put(fmt.Sprintf("n=%d", b.n)), Sends: []wire.Outgoing{{To: "x", Msg: &wire.Report{}}}, Result: b.n}
}
func (b *brittle) Tick(time.Time) wire.Effects { panic("tick") }
func (b *brittle) NextWake() time.Time         { return time.Time{} }

// A panic refuses one message. What the batch had before it is carried out with an event about it, and the engine takes no more.
func TestPanicOfAStep(t *testing.T) {
	d := &diary{}
	e := NewEngine(&brittle{}, d)
	now := time.Unix(0, 0)
	e.Step(now, "good", d.answer)
	var told error
	e.Step(now, &bomb{From: "a"}, func(_ any, err error) { told = err })
	if !e.Full() {
		t.Error("a batch of a broken core takes more")
	}
	e.Flush(now, d.commit)
	d.done(nil)
	d.is(t, "commit n=1 event/MessageRefused=1", "send x", "announce 1", "answer 1 <nil>")
	if x := skerry.AsError(told); x == nil || x.Code != skerry.CodeInternal || x.Hint == "" {
		t.Errorf("the sender is told %v", told)
	}
	var p *PanicError
	if !errors.As(e.Err(), &p) || p.Sender != "a" || p.Message != "*loop.bomb" || !strings.Contains(string(p.Stack), "brittle") || p.Held != 0 {
		t.Errorf("it ended with %+v", e.Err())
	}
	defer func() {
		if recover() == nil {
			t.Error("a broken core was stepped")
		}
	}()
	e.Step(now, "good", nil)
}

// One message of which follows a record that no store takes is refused alone: the store would refuse the whole batch, and the role no
// longer take anybody's writes.
func TestRecordThatIsTooLarge(t *testing.T) {
	d := &diary{}
	e := NewEngine(scripted{}, d)
	now := time.Unix(0, 0)
	e.Step(now, wire.Effects{Writes: put("good=1")}, d.answer)
	var told error
	e.Step(now, wire.Effects{Writes: put("bad=" + strings.Repeat("x", store.MaxValue+1))}, func(_ any, err error) { told = err })
	e.Flush(now, d.commit)
	d.done(nil)
	d.is(t, "commit good=1 event/MessageRefused=1", "announce 1", "answer <nil> <nil>")
	if x := skerry.AsError(told); !errors.Is(e.Err(), store.ErrTooLarge) || x == nil || x.Code != skerry.CodeTooLarge {
		t.Errorf("it ended with %v, and the sender is told %v", e.Err(), told)
	}
}

// The next core, with the same memory, is not given the message again, whoever waits and however it was changed the first time.
func TestRefusedMessagesAreRemembered(t *testing.T) {
	r := NewRefusals()
	now := time.Unix(0, 0)
	step := func(msg any) (err error, broken bool) {
		e := NewEngine(&brittle{}, &diary{})
		e.Refusals = r
		e.Step(now, msg, func(_ any, got error) { err = got })
		e.Flush(now, func(_ []store.Op, done func(error)) { done(nil) })
		return err, e.Err() != nil
	}
	one := 1
	for _, msg := range []func() any{
		func() any { return &bomb{N: 1, From: "a", Map: map[string]*int{"a": &one, "b": nil, "c": new(int)}} },
		func() any { return asked{[]int{1, 2}} },
	} {
		if err, broken := step(msg()); err == nil || !broken {
			t.Fatalf("%T: %v, %v", msg(), err, broken)
		}
		for range 3 {
			if err, broken := step(msg()); broken || skerry.AsError(err).Code != skerry.CodeInternal {
				t.Errorf("%T is tried again: %v, %v", msg(), err, broken)
			}
		}
	}
	if err, broken := step("good"); err != nil || broken {
		t.Errorf("another message: %v, %v", err, broken)
	}
	if err, broken := step(asked{[]int{2, 2}}); err == nil || !broken {
		t.Errorf("one that was not tried was refused: %v, %v", err, broken)
	}
	now = now.Add(2 * forgetAfter)
	if err, broken := step(asked{[]int{1, 2}}); err == nil || !broken {
		t.Errorf("after hours it is not tried: %v, %v", err, broken)
	}
	for i := range 3 * maxRefused {
		r.add(now, asked{[]int{i}}, digestOf(i))
	}
	for i := range 3 * maxSenders {
		r.add(now.Add(time.Duration(i)), &bomb{From: fmt.Sprint(i)}, digestOf(i))
	}
	if len(r.digests) > maxRefused || len(r.order) > maxRefused || len(r.senders) > maxSenders {
		t.Errorf("it remembers %d, %d, %d", len(r.digests), len(r.order), len(r.senders))
	}
}

// A sender that finds ever new messages to panic on is not listened to for longer and longer; others are.
func TestSendersAreHeld(t *testing.T) {
	r := NewRefusals()
	now := time.Unix(1e9, 0)
	for i, want := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute} {
		m := &bomb{From: "a", N: i}
		if got := r.add(now, m, digestOf(m)); got != want || r.Held(now, "a") != want {
			t.Errorf("after %d panics it is held for %s", i+1, got)
		}
		if err := r.check(now, &bomb{From: "a", N: 100}); (err != nil) != (want > 0) {
			t.Errorf("another message of it: %v", err)
		}
		if err := r.check(now, &bomb{From: "b", N: 100}); err != nil {
			t.Errorf("a message of another: %v", err)
		}
		now = now.Add(want)
		if err := r.check(now, &bomb{From: "a", N: 100}); err != nil {
			t.Errorf("after %s: %v", want, err)
		}
	}
	now = now.Add(3 * time.Hour)
	if m := (&bomb{From: "a", N: 9}); r.add(now, m, digestOf(m)) != 0 {
		t.Error("it is never forgotten")
	}
}

func TestDigest(t *testing.T) {
	zone := time.FixedZone("x", 60)
	at := time.Unix(5, 6)
	same := [][2]any{
		{&bomb{N: 1}, &bomb{N: 1}}, {map[string]int{"a": 1, "b": 2}, map[string]int{"b": 2, "a": 1}},
		{at, at.In(zone)}, {nil, nil}, {[]byte("x"), []byte("x")},
	}
	for _, s := range same {
		if digestOf(s[0]) != digestOf(s[1]) {
			t.Errorf("%v and %v differ", s[0], s[1])
		}
	}
	seen := map[digest]any{}
	for _, v := range []any{nil, &bomb{}, bomb{}, &bomb{N: 1}, &bomb{From: "1"}, asked{}, asked{[]int{0}}, asked{[]int{0, 0}}, "a", "b", []string{"ab", ""}, []string{"a", "b"}, map[string]int{"a": 1},
		map[string]int{"a": 2}, map[int]string{}, 1.5, true, false, []byte("a"), [1]byte{1}, at, errors.New("x"), &struct{ a any }{1}, &struct{ a any }{"1"}} {
		if old, ok := seen[digestOf(v)]; ok {
			t.Errorf("%#v and %#v are the same", old, v)
		}
		seen[digestOf(v)] = v
	}
	type ring struct{ next []*ring }
	r := &ring{}
	r.next = []*ring{r, r, r}
	digestOf(r) // ends
}

// A view that panics is an error for who looks, and ends the loop as a message does; another view of the same is refused.
func TestPanicOfAView(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	r := NewRefusals()
	for life := range 2 {
		l := New(&brittle{}, st, quiet{}, nil)
		l.Refusals = r
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, wire.Effects{}) }()
		err := l.ViewAbout(t.Context(), asked{[]int{1}}, func() { panic("view") })
		if skerry.AsError(err).Code != skerry.CodeInternal {
			t.Errorf("life %d: %v", life, err)
		}
		if life > 0 {
			cancel()
		}
		var p *PanicError
		if err := <-done; errors.As(err, &p) != (life == 0) {
			t.Errorf("life %d ended with %v", life, err)
		}
		cancel()
	}
}
