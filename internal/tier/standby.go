package tier

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/time/rate"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
)

const (
	standbyDial   = time.Second      // between tries to reach the one that leads
	standbyRetry  = 30 * time.Second // before what failed is tried again
	standbyAnswer = time.Minute      // for a report
	// standbyReserve is how much of the disk copies leave free: the copy of the store is on it as well.
	standbyReserve = skerry.GiB
	// rateBurst is what a limit of a rate lets through at once.
	rateBurst = 1 << 20
)

// Standby copies the images of a role to a process that stands by. All but Most and Rate are needed.
type Standby struct {
	Dir   string      // of the images
	Store store.Store // the role's, or a copy of it
	// Dial connects to the one that leads.
	Dial func(ctx context.Context) (net.Conn, error)
	Most int64        // bytes of images; 0 is no bound
	Rate skerry.Bytes // a second; 0 is no bound
	// Reserve is standbyReserve unless given.
	Reserve skerry.Bytes
	Log     *slog.Logger

	mu    sync.Mutex
	state view.ImageStandby
}

// State is how it fares.
func (s *Standby) State() view.ImageStandby {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Standby) change(fn func(v *view.ImageStandby)) {
	s.mu.Lock()
	was := s.state.Why
	fn(&s.state)
	now := s.state.Why
	s.mu.Unlock()
	if now != was && now != "" {
		s.Log.Warn("images are not copied to this machine", "why", now)
	}
}

// Run copies until ctx ends. What fails is tried again.
func (s *Standby) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.life(ctx)
		if err != nil && ctx.Err() == nil {
			s.change(func(v *view.ImageStandby) { v.Connected, v.Why = false, err.Error() })
		}
		pause(ctx, standbyDial)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// errNothingYet says that the store is still on its way.
var errNothingYet = errors.New("nothing was copied of the store yet")

func lifeOf(ctx context.Context, st store.Store) (skerry.Incarnation, error) {
	rec, err := st.Get(ctx, KeyLife)
	if errors.Is(err, store.ErrNotFound) {
		return "", errNothingYet
	}
	var l Life
	if err == nil {
		err = json.Unmarshal(rec.Value, &l)
	}
	return l.Incarnation, err
}

// namesOfLife are names of one life of a store. Those of another one, which has taken its place meanwhile, are not taken for them: what is
// missing there would count as deleted.
type namesOfLife struct {
	ImageNames
	life skerry.Incarnation
}

// ListRecords gives names with what the store says of them.
func (n namesOfLife) ListRecords(ctx context.Context, prefix string, each func(name string, value []byte) error) error {
	if err := n.ImageNames.ListRecords(ctx, prefix, each); err != nil {
		return err
	}
	if now, err := lifeOf(ctx, n.Store); err != nil || now != n.life {
		return errors.Join(errors.New("the store was exchanged"), err)
	}
	return nil
}

// life copies for as long as the store has the same life.
func (s *Standby) life(ctx context.Context) (err error) {
	defer panics.Error(&err)
	life, err := lifeOf(ctx, s.Store)
	if err != nil {
		return err
	}
	var leader leaderLink
	ledger := &artifact.Ledger{Names: namesOfLife{ImageNames{s.Store}, life}, Life: string(life), Others: &leader, Follows: true}
	if s.Rate > 0 {
		ledger.Limit = rate.NewLimiter(rate.Limit(s.Rate), rateBurst)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	damaged := func(blob digest.Digest) {
		end(fmt.Errorf("%s was damaged on this disk; what is there is looked at again", blob))
	}
	images, err := artifact.Open(s.Dir, artifact.Options{Local: imageref.BuiltIn, Ledger: ledger, Damaged: damaged})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, images.Close()) }()
	// What was left behind by pushes to this machine, when it led, goes as it would where images are served.
	if _, err := artifact.PruneUntil(ctx, images, time.Now().Add(-24*time.Hour)); err != nil {
		return err
	}
	changes := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { s.watch(ctx, changes) })
	whole := map[digest.Digest]bool{} // since the store was opened: nothing else removes a blob
	for {
		conn, err := s.Dial(ctx)
		if err != nil {
			err = fmt.Errorf("the leader cannot be reached: %w", err)
		} else {
			err = s.session(ctx, conn, life, &leader, images, whole, changes)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.change(func(v *view.ImageStandby) { v.Connected, v.Why = false, err.Error() })
		if now, err := lifeOf(ctx, s.Store); err != nil || now != life {
			return err
		}
		pause(ctx, standbyDial)
	}
}

// watch says when names have changed.
func (s *Standby) watch(ctx context.Context, changes chan<- struct{}) {
	for ctx.Err() == nil {
		_, from, err := s.Store.List(ctx, keyImages)
		notify(changes) // of what was changed before nobody is told
		if err == nil {
			err = s.Store.Watch(ctx, keyImages, from, func([]store.Event) error {
				notify(changes)
				return nil
			})
		}
		s.Log.Debug("names of images", "err", err)
		pause(ctx, standbyDial)
	}
}

func notify(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// leaderLink carries requests to the process that leads, while one is connected.
type leaderLink struct {
	mu sync.Mutex
	to http.RoundTripper
}

func (l *leaderLink) set(to http.RoundTripper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// RoundTrip implements http.RoundTripper.
func (l *leaderLink) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	if to == nil {
		return nil, link.ErrDown
	}
	return to.RoundTrip(r)
}

// session copies over one connection.
func (s *Standby) session(ctx context.Context, conn net.Conn, life skerry.Incarnation, leader *leaderLink, images *artifact.Store,
	whole map[digest.Digest]bool, changes chan struct{}) error {
	both, err := link.NewDuplex(conn, true, standbyKeepAlive, artifact.Held(images))
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer both.Close()
	leader.set(both.Transport)
	defer leader.set(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { both.Close() })
	defer stop()
	go func() {
		select {
		case <-both.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	anew := true
	for {
		again, missing, err := s.round(ctx, both, images, whole, &anew, changes)
		if err != nil {
			return err
		}
		if again {
			continue
		}
		var retry <-chan time.Time
		if missing > 0 {
			retry = time.After(standbyRetry)
		}
		if now, err := lifeOf(ctx, s.Store); err != nil || now != life {
			return errors.Join(errors.New("the store was exchanged"), err)
		}
		select {
		case <-ctx.Done():
			return errors.New("the connection to the leader has ended")
		case <-changes:
		case <-retry:
		}
	}
}

// round takes the names over and fetches what they lead to, until that is here or names have changed again. The leader is told of each
// image when it is here, and in the end of all that is not; anew until it has been told of all that was here before.
func (s *Standby) round(ctx context.Context, both *link.Duplex, images *artifact.Store, whole map[digest.Digest]bool, anew *bool,
	changes chan struct{}) (again bool, missing int, err error) {
	if err := artifact.ReloadLedger(ctx, images); err != nil {
		s.change(func(v *view.ImageStandby) { v.Connected, v.Missing, v.Why = true, 1, err.Error() })
		return false, 1, s.tell(ctx, both, have{Missing: 1, Why: err.Error()})
	}
	wanted := artifact.LedgerImages(images)
	report := have{Anew: *anew}
	for sum := range whole {
		if !wanted[sum] {
			delete(whole, sum)
			report.Gone = append(report.Gone, sum)
		} else if *anew {
			report.Whole = append(report.Whole, sum)
		}
	}
	why := ""
	told := func(h have) error {
		if h.Missing = len(wanted) - len(whole); h.Missing > 0 {
			h.Why = cmp.Or(why, "they are being copied")
		}
		s.change(func(v *view.ImageStandby) {
			v.Connected, v.Images, v.Missing, v.Why, v.Heard = true, len(whole), h.Missing, why, time.Now()
		})
		for _, part := range h.parts(mostInReport) {
			if err := s.tell(ctx, both, part); err != nil {
				return err
			}
		}
		return nil
	}
	if err := told(report); err != nil {
		return false, 0, err
	}
	*anew = false
	artifact.Complete(ctx, images, artifact.Completion{Reserve: int64(cmp.Or(s.Reserve, standbyReserve)), Most: s.Most,
		Each: func(sum digest.Digest, failed error) bool {
			if failed == nil {
				whole[sum] = true
				err = told(have{Whole: []digest.Digest{sum}})
			} else if why == "" {
				why = failed.Error()
			}
			select {
			case <-changes:
				again = true
			default:
			}
			return err == nil && !again
		}})
	if missing = len(wanted) - len(whole); err == nil && ctx.Err() == nil && !again && missing > 0 {
		err = told(have{})
	}
	return again, missing, errors.Join(err, ctx.Err())
}

func (s *Standby) tell(ctx context.Context, both *link.Duplex, told have) error {
	ctx, cancel := context.WithTimeout(ctx, standbyAnswer)
	defer cancel()
	raw, err := json.Marshal(told)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://leader"+pathHave, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	res, err := both.Transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("the leader refuses what this machine has: %s: %s", res.Status, bytes.TrimSpace(text))
	}
	return nil
}
