package loop

import (
	"context"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// slow is a core to which a message takes as long as it says.
type slow struct{}

func (slow) Step(_ time.Time, msg any) wire.Effects {
	time.Sleep(msg.(time.Duration))
	return wire.Effects{}
}
func (slow) Tick(time.Time) wire.Effects { return wire.Effects{} }
func (slow) NextWake() time.Time         { return time.Time{} }

// A sender whose messages take long, or who has very many, does not keep others waiting behind all of them.
func TestOneSenderLeavesTimeToOthers(t *testing.T) {
	for what, each := range map[string]time.Duration{"messages that take long": 30 * time.Millisecond, "many messages": time.Millisecond} {
		t.Run(what, func(t *testing.T) {
			st, err := store.Open(t.Context(), "memory:", store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			l := New(slow{}, st, quiet{}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			ended, sent := make(chan error, 1), make(chan struct{})
			go func() { ended <- l.Run(ctx, wire.Effects{}) }()
			share := NewShare()
			go func() {
				defer close(sent)
				for l.PostShare(share, each) {
				}
			}()
			for len(share.line) < lineLength {
				time.Sleep(time.Millisecond)
			}
			for range 5 {
				begin := time.Now()
				if _, err := l.Do(ctx, time.Duration(0)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("another sender waited for %s, beside one whose messages take %s", took, each)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			<-sent // it does not wait for a loop that has ended
		})
	}
}

// A loop that only answers views lets go of what its senders post.
func TestShareOfALoopThatTakesNothing(t *testing.T) {
	l := New(slow{}, nil, quiet{}, context.DeadlineExceeded)
	ctx, cancel := context.WithCancel(t.Context())
	ended, posted := make(chan error, 1), make(chan bool)
	go func() { ended <- l.Run(ctx, wire.Effects{}) }()
	share := NewShare()
	go func() {
		for range 2 * lineLength {
			posted <- l.PostShare(share, time.Duration(0))
		}
	}()
	for n := range 2 * lineLength {
		select {
		case ok := <-posted:
			if !ok {
				t.Errorf("message %d was refused", n)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("message %d waits for ever", n)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
