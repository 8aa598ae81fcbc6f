package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// ledger notes what happens, in the order in which it does.
type ledger struct {
	mu   sync.Mutex
	list []string
}

func (d *ledger) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, what)
}

func (d *ledger) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// busy is a core whose every step, tick and start has an effect of each kind.
type busy struct{ due time.Time }

func everything() wire.Effects {
	return wire.Effects{Writes: []wire.Write{{Key: "r/1", Value: []byte("x")}}, Sends: []wire.Outgoing{{To: "w", Msg: &wire.SetAck{}}},
		Events: []wire.Event{{Reason: "It"}}, Actions: []any{"act"}, Result: "answer"}
}

func (b *busy) Step(time.Time, any) wire.Effects { return everything() }
func (b *busy) Tick(time.Time) wire.Effects {
	b.due = time.Time{}
	return everything()
}
func (b *busy) NextWake() time.Time { return b.due }

// scribe is a host that notes what it is told.
type scribe struct{ *ledger }

func (s scribe) Record(_ time.Time, events []wire.Event) (out []wire.Write) {
	for range events {
		out = append(out, wire.Write{Key: "event/1", Value: []byte("It")})
	}
	return out
}
func (s scribe) Send(string, wire.Message) { s.note("send") }
func (s scribe) Announce(events []wire.Event, _ []wire.Change) {
	for range events {
		s.note("announce")
	}
}
func (s scribe) Act(any) { s.note("act") }

// slowStore holds every commit until the test lets it go.
type slowStore struct {
	store.Store
	*ledger
	begun chan []store.Op
	let   chan error
}

func (s *slowStore) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	s.begun <- ops
	if err := <-s.let; err != nil {
		return 0, err
	}
	rev, err := s.Store.Commit(ctx, ops)
	s.note("commit")
	return rev, err
}

// held is how long nothing may happen that waits for a commit. What is wrong shows at once, or a little later.
const held = 20 * time.Millisecond

// TestLoopOrder: what a step leads to comes in the order persist, send, announce, act, answer, with the events in the same commit, and nothing
// of it before the commit has ended, however long that takes. A loop's first effects and those of a tick keep to it, too.
func TestLoopOrder(t *testing.T) {
	for _, what := range []string{"the start", "a tick", "a message"} {
		t.Run(what, func(t *testing.T) {
			core, first, want := &busy{}, wire.Effects{}, []string{"commit", "send", "announce", "act"}
			switch what {
			case "the start":
				first = everything()
			case "a tick":
				core.due = time.Now()
			case "a message":
				want = append(want, "answer")
			}
			l, slow, done, stop := begin(t, core, first)
			if what == "a message" {
				go func() {
					if res, err := l.Do(t.Context(), "ask"); err != nil || res != "answer" {
						t.Errorf("the answer is %v, %v", res, err)
					}
					slow.note("answer")
				}()
			}
			if ops := <-slow.begun; len(ops) != 2 || ops[0].Key != "r/1" || ops[1].Key != "event/1" {
				t.Errorf("it commits %+v", ops)
			}
			time.Sleep(held)
			if early := slow.read(); len(early) > 0 {
				t.Errorf("before the commit: %v", early)
			}
			slow.let <- nil
			for deadline := time.Now().Add(5 * time.Second); len(slow.read()) < len(want) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if got := slow.read(); !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// begin runs a loop over a store that holds commits up; it ends with stop or with the test.
func begin(t *testing.T, core Core, first wire.Effects) (l *Loop, slow *slowStore, done chan error, stop func()) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	d := &ledger{}
	slow = &slowStore{Store: st, ledger: d, begun: make(chan []store.Op, 1), let: make(chan error)}
	l = New(core, slow, scribe{d}, nil)
	ctx, stop := context.WithCancel(t.Context())
	done = make(chan error, 1)
	go func() { done <- l.Run(ctx, first) }()
	return l, slow, done, stop
}

// TestRefusedCommit: of what a refused commit was for nothing is sent, announced or done, who asked gets the reason, and the loop ends.
func TestRefusedCommit(t *testing.T) {
	l, slow, done, stop := begin(t, &busy{}, wire.Effects{})
	defer stop()
	answered := make(chan error, 1)
	go func() {
		_, err := l.Do(t.Context(), "ask")
		answered <- err
	}()
	<-slow.begun
	slow.let <- store.ErrFull
	if err := <-answered; skerry.AsError(err).Code != skerry.CodeFull {
		t.Errorf("answered with %v", err)
	}
	if err := <-done; !errors.Is(err, store.ErrFull) {
		t.Errorf("it ended with %v", err)
	}
	if did := slow.read(); len(did) > 0 {
		t.Errorf("it did %v", did)
	}
	if _, err := l.Do(t.Context(), "ask"); !errors.Is(err, ErrStopped) {
		t.Errorf("after its end it answers with %v", err)
	}
}
