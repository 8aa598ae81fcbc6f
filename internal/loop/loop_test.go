package loop

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// writer is a core that writes as many records as it is told.
type writer struct{ n int }

// many asks for records of a size.
type many struct{ records, size int }

func (w *writer) Step(_ time.Time, msg any) wire.Effects {
	m := msg.(many)
	var fx wire.Effects
	for range m.records {
		w.n++
		fx.Writes = append(fx.Writes, wire.Write{Key: fmt.Sprintf("r/%08d", w.n), Value: make([]byte, m.size)})
	}
	fx.Result = w.n
	return fx
}
func (w *writer) Tick(time.Time) wire.Effects { return wire.Effects{} }
func (w *writer) NextWake() time.Time         { return time.Time{} }

type quiet struct{}

func (quiet) Record(time.Time, []wire.Event) []wire.Write { return nil }
func (quiet) Send(string, wire.Message)                   {}
func (quiet) Announce([]wire.Event, []wire.Change)        {}
func (quiet) Act(any)                                     {}

// limited counts commits and holds the first one up, so that messages pile up behind it.
type limited struct {
	store.Store
	commits     int
	began, hold chan struct{}
}

func (l *limited) Commit(ctx context.Context, ops []store.Op) (int64, error) {
	if l.commits++; l.commits == 1 {
		close(l.began)
		<-l.hold
	}
	return l.Store.Commit(ctx, ops)
}

// A step that writes more than the store takes in one commit, and many steps that together do, are no reason to stop.
func TestMoreThanOneCommit(t *testing.T) {
	for what, msgs := range map[string][]many{
		"one large step": {{1, 1}, {store.MaxOps + 5, 10}},
		"large records":  {{1, 1}, {12, 900 << 10}},
		"many steps":     append([]many{{1, 1}}, make([]many, 100)...),
	} {
		t.Run(what, func(t *testing.T) {
			want := 0
			for i := range msgs {
				if msgs[i].records == 0 {
					msgs[i] = many{100, 2000}
				}
				want += msgs[i].records
			}
			st, err := store.Open(t.Context(), "memory:", store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			lim := &limited{Store: st, began: make(chan struct{}), hold: make(chan struct{})}
			l := New(&writer{}, lim, quiet{}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx, wire.Effects{}) }()
			answers := make(chan error, len(msgs))
			for i, m := range msgs {
				go func() {
					_, err := l.Do(ctx, m)
					answers <- err
				}()
				if i == 0 {
					<-lim.began // else the second may be part of the first commit
				}
				for l.Stats().Queue < i {
					time.Sleep(100 * time.Microsecond)
				}
			}
			close(lim.hold)
			for range msgs {
				if err := <-answers; err != nil {
					t.Errorf("refused: %v", err)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the role stopped: %v", err)
			}
			if recs, _, err := st.List(t.Context(), ""); err != nil || len(recs) != want {
				t.Errorf("%d of %d records are kept: %v", len(recs), want, err)
			}
		})
	}
}

// A record that no store takes is an error for who asked, and has the role begin anew without it.
func TestRecordTooLarge(t *testing.T) {
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	l := New(&writer{}, st, quiet{}, nil)
	done := make(chan error, 1)
	go func() { done <- l.Run(t.Context(), wire.Effects{}) }()
	if _, err := l.Do(t.Context(), many{1, store.MaxValue + 1}); err == nil {
		t.Error("accepted")
	}
	err = <-done
	if _, refused := errors.AsType[*PanicError](err); !refused || !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
}

// listed is a store of which a scan may fail.
type listed struct {
	panics  bool
	records []store.Record
	err     error
}

func (l *listed) List(context.Context, string) ([]store.Record, int64, error) {
	if l.panics {
		panic("torn page")
	}
	return l.records, 1, l.err
}

// Load hands over all records in order, and ends with the first error, of the store or of who takes them.
func TestLoad(t *testing.T) {
	st := &listed{}
	for n := range 10_000 {
		st.records = append(st.records, store.Record{Key: fmt.Sprintf("k/%05d", n)})
	}
	var got []store.Record
	take := func(key string, value []byte) error {
		got = append(got, store.Record{Key: key, Value: value})
		return nil
	}
	if err := Load(t.Context(), st, InTurn(take)); err != nil || !reflect.DeepEqual(got, st.records) {
		t.Errorf("load: got %d records, %v, want all %d in order", len(got), err, len(st.records))
	}
	refused := errors.New("refused")
	taken := 0
	err := Load(t.Context(), st, InTurn(func(string, []byte) error {
		if taken++; taken == 700 {
			return refused
		}
		return nil
	}))
	if !errors.Is(err, refused) || taken != 700 {
		t.Errorf("load of which the 700th record is refused: got %v after %d, want that error, and no more records", err, taken)
	}
	if err := Load(t.Context(), &listed{panics: true}, InTurn(take)); err == nil || !strings.Contains(err.Error(), "torn page") {
		t.Errorf("load of a store that panics: got %v, want that as an error", err)
	}
	taken = 0
	err = Load(t.Context(), st, func(key string, _ []byte) func() error {
		if key == "k/00700" {
			panic("a torn record")
		}
		return func() error { taken++; return nil }
	})
	if err == nil || !strings.Contains(err.Error(), "a torn record") || taken != 700 {
		t.Errorf("load of which the record after 700 panics: got %v after %d, want that as an error after those", err, taken)
	}
	st.err = errors.New("unreadable")
	if err := Load(t.Context(), st, InTurn(take)); !errors.Is(err, st.err) {
		t.Errorf("load of a store that cannot be read: got %v, want its error", err)
	}
}
