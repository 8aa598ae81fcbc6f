package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// busyLoop is a loop whose first commit lasts until hold is closed, with messages that wait behind it.
func busyLoop(t *testing.T, first bool, waiting int) (l *Loop, lim *limited, core *writer, done chan error) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	lim, core = &limited{Store: st, began: make(chan struct{}), hold: make(chan struct{})}, &writer{}
	l = New(core, lim, quiet{}, nil)
	l.ViewsFirst = first
	done = make(chan error, 1)
	go func() { done <- l.Run(t.Context(), wire.Effects{}) }()
	l.Post(many{1, 1})
	<-lim.began
	for range waiting {
		l.Post(many{1, 1})
	}
	return l, lim, core, done
}

// A view that goes first is answered while a batch is written, before what waits behind that; the disk takes its time.
func TestViewsGoFirst(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, lim, core, _ := busyLoop(t, first, 10)
			seen := 0
			answered := make(chan error, 1)
			go func() { answered <- l.View(t.Context(), func() { seen = core.n }) }()
			synctest.Wait()
			if got := len(answered) == 1; got != first {
				t.Errorf("views first %v: answered beside the commit %v, want %[1]v", first, got)
			}
			if first && seen != 1 {
				t.Errorf("views first: it saw %d records, want that of the commit alone", seen)
			}
			if !first && l.Stats().Queue != 11 {
				t.Errorf("views in turn: %d wait, want the messages and the view", l.Stats().Queue)
			}
			close(lim.hold)
			if err := <-answered; err != nil {
				t.Errorf("the view: %v", err)
			}
			if !first && seen != 11 {
				t.Errorf("views in turn: it saw %d records, want all that were asked for before", seen)
			}
		})
	}
}

// Turn waits for the disk and for what waits, whoever goes first: it shows whether the loop does its work.
func TestTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lim, core, _ := busyLoop(t, true, 10)
		answered := make(chan error, 1)
		go func() { answered <- l.Turn(t.Context()) }()
		synctest.Wait()
		if len(answered) != 0 {
			t.Error("it did not wait for the commit")
		}
		close(lim.hold)
		if err := <-answered; err != nil || core.n != 11 {
			t.Errorf("got %v after %d messages, want none after 11", err, core.n)
		}
	})
}

// A view that panics beside a commit is refused and ends the loop as one in turn does, with the commit kept.
func TestPanicOfAViewBesideACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lim, _, done := busyLoop(t, true, 0)
		answered := make(chan error, 1)
		go func() { answered <- l.View(t.Context(), func() { panic("view") }) }()
		synctest.Wait()
		if len(answered) != 0 {
			t.Error("it was answered before the commit was kept")
		}
		close(lim.hold)
		if err := <-answered; err == nil {
			t.Error("the view was not refused")
		}
		if _, panicked := errors.AsType[*PanicError](<-done); !panicked {
			t.Error("the loop went on")
		}
		if recs, _, err := lim.List(t.Context(), ""); err != nil || len(recs) != 1 {
			t.Errorf("%d records are kept (%v), want 1", len(recs), err)
		}
	})
}

// Whoever stops waiting for a view leaves nothing behind that holds the loop up.
func TestViewGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lim, core, _ := busyLoop(t, true, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.ViewAbout(ctx, many{}, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a view about something: got %v, want that it waits in turn", err)
		}
		close(lim.hold)
		if err := l.Turn(t.Context()); err != nil || core.n != 2 {
			t.Errorf("got %v after %d messages, want none after 2", err, core.n)
		}
	})
}

// torn is a core that panics in the middle of a step.
type torn struct{ writer }

func (t *torn) Step(now time.Time, msg any) wire.Effects {
	fx := t.writer.Step(now, msg)
	if msg.(many).records > 1 {
		panic("half done")
	}
	return fx
}

// Nobody is shown a core that panicked in the middle of a step, while what came before that is written: what the step has done so far is
// lost, and may be of no sense.
func TestNoViewOfABrokenCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(t.Context(), "memory:", store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		lim, core := &limited{Store: st, began: make(chan struct{}), hold: make(chan struct{})}, &torn{}
		l := New(core, lim, quiet{}, nil)
		l.ViewsFirst = true
		l.Post(many{1, 1})
		l.Post(many{2, 1})
		done := make(chan error, 1)
		go func() { done <- l.Run(t.Context(), wire.Effects{}) }()
		<-lim.began
		answered := make(chan error, 1)
		seen := 0
		go func() { answered <- l.View(t.Context(), func() { seen = core.n }) }()
		synctest.Wait()
		close(lim.hold)
		if err := <-answered; !errors.Is(err, ErrStopped) || seen != 0 {
			t.Errorf("got %v with %d records, want that the next life answers it", err, seen)
		}
		if _, panicked := errors.AsType[*PanicError](<-done); !panicked {
			t.Error("the loop went on after a panic, want that it ends")
		}
	})
}

// However many views wait, a batch has messages, too: whoever asks without end does not keep a role from its work.
func TestViewsLeaveRoomForMessages(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	core := &writer{}
	l := New(core, st, quiet{}, nil)
	l.ViewsFirst = true
	for range batchLength {
		l.views <- input{view: func() {}, reply: make(chan reply, 1)}
		l.Post(many{1, 1})
	}
	l.batch(NewEngine(core, quiet{}), <-l.in)
	if want := batchLength / (viewsBetween + 1); core.n < want {
		t.Errorf("a batch beside many views has %d messages, want %d", core.n, want)
	}
}
