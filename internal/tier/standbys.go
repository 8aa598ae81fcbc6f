package tier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/view"
)

const (
	// standbyPatience is how long a push waits for standbys that had everything before it. One that does not make it is not waited for
	// again until it has everything.
	standbyPatience = 10 * time.Second
	// standbyForgotten is how long one that left is shown.
	standbyForgotten = 24 * time.Hour
	// standbyAnswers is how long one that is asked may take to answer if another one can be asked in its place.
	standbyAnswers = 15 * time.Second
	// standbyAdmits is how often one that asks for nothing is looked at, whether it may stand by.
	standbyAdmits    = 2 * time.Second
	standbyKeepAlive = 15 * time.Second // a slow link is silent for long while a layer is on it
	maxStandbys      = 16
	maxHave          = 8 << 20 // bytes of a report
	mostInReport     = 20_000  // images in one: some 3 MB
	maxWhole         = 400_000 // images that a standby has; a registry has no more
)

// pathHave is where a standby tells what it has.
const pathHave = "/have"

// have is what a standby tells of images: with Anew the whole of them is in this and the reports that follow it.
type have struct {
	Anew  bool            `json:"anew,omitempty"`
	Whole []digest.Digest `json:"whole,omitempty"` // images that it has since the last report
	Gone  []digest.Digest `json:"gone,omitempty"`
	// Missing is how many it lacks, and Why the first reason.
	Missing int    `json:"missing,omitempty"`
	Why     string `json:"why,omitempty"`
}

// stillTelling is why a standby counts as lacking what it has.
const stillTelling = "it is telling what it has"

// parts divides a report into some with so many images at most. All but the last count as lacking what follows.
func (h have) parts(most int) (out []have) {
	for len(h.Gone) > most {
		out = append(out, have{Anew: h.Anew, Gone: h.Gone[:most], Missing: h.Missing + len(h.Whole), Why: cmp.Or(h.Why, stillTelling)})
		h.Anew, h.Gone = false, h.Gone[most:]
	}
	for len(h.Gone)+len(h.Whole) > most {
		n := most - len(h.Gone)
		out = append(out, have{Anew: h.Anew, Gone: h.Gone, Whole: h.Whole[:n], Missing: h.Missing + len(h.Whole) - n,
			Why: cmp.Or(h.Why, stillTelling)})
		h.Anew, h.Gone, h.Whole = false, nil, h.Whole[n:]
	}
	return append(out, h)
}

func parseHave(from io.Reader) (told have, err error) {
	raw, err := io.ReadAll(io.LimitReader(from, maxHave+1))
	if err == nil && len(raw) > maxHave {
		err = fmt.Errorf("it has more than %d bytes", maxHave)
	}
	if err == nil {
		err = json.Unmarshal(raw, &told)
	}
	for _, d := range slices.Concat(told.Whole, told.Gone) {
		if err == nil {
			_, err = imageref.ParseDigest(d.String())
		}
	}
	if err == nil && told.Missing < 0 {
		err = fmt.Errorf("%d images are missing", told.Missing)
	}
	if err != nil {
		return have{}, fmt.Errorf("report of a standby: %w", err)
	}
	told.Why = strings.ToValidUTF8(told.Why[:min(len(told.Why), 500)], "")
	return told, nil
}

// Standbys are the processes that stand by for a role, as far as its images are concerned, as the one that leads knows them. It carries
// requests to them for what is missing here.
type Standbys struct {
	Images   *artifact.Store
	Patience time.Duration // standbyPatience unless given
	Answers  time.Duration // standbyAnswers unless given

	mu      sync.Mutex
	list    map[string]*standby
	changed chan struct{} // closed and replaced when something changes
	came    chan struct{} // of capacity 1: one connected, which may have what is missing here
}

type standby struct {
	link    *link.Duplex // nil: it is away
	whole   map[digest.Digest]bool
	missing int
	why     string
	told    bool // what it has, since it connected
	ended   bool // the connection; what is still on its way of it does not count
	inStep  bool // it had everything since, and each push in time
	heard   time.Time
	failed  time.Time // it did not answer
}

// NewStandbys knows of none yet.
func NewStandbys() *Standbys {
	return &Standbys{list: map[string]*standby{}, changed: make(chan struct{}), came: make(chan struct{}, 1), Patience: standbyPatience,
		Answers: standbyAnswers}
}

func (s *Standbys) signalLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Serve gives a standby what it asks for until the connection ends. admit is asked before each answer, and from time to time. One that may
// not stand by any more is none.
func (s *Standbys) Serve(ctx context.Context, conn net.Conn, name string, admit func() error) error {
	held := artifact.Held(s.Images)
	known := &standby{whole: map[digest.Digest]bool{}, heard: time.Now()}
	both, err := link.NewDuplex(conn, false, standbyKeepAlive, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := admit(); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			conn.Close()
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != pathHave {
			held.ServeHTTP(w, r)
			return
		}
		told, err := parseHave(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := s.hear(known, told); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	if err != nil {
		return err
	}
	defer both.Close()
	s.mu.Lock()
	old := s.list[name]
	if old == nil && len(s.list) >= maxStandbys && !s.forgetLocked() {
		s.mu.Unlock()
		return fmt.Errorf("there are %d standbys already", maxStandbys)
	}
	var before *link.Duplex // it connects again before this end has noticed
	if old != nil {
		before = old.link
	}
	known.link = both
	s.list[name] = known
	s.signalLocked()
	s.mu.Unlock()
	if before != nil {
		before.Close()
	}
	select {
	case s.came <- struct{}{}:
	default:
	}
	err = untilEnd(ctx, both, admit)
	s.mu.Lock()
	known.link, known.ended, known.inStep, known.heard = nil, true, false, time.Now()
	if err != nil && s.list[name] == known {
		delete(s.list, name)
	}
	s.signalLocked()
	s.mu.Unlock()
	return err
}

// untilEnd waits until a connection ends, and gives an error if that is because whoever made it is not admitted any more.
func untilEnd(ctx context.Context, both *link.Duplex, admit func() error) error {
	tick := time.NewTicker(standbyAdmits)
	defer tick.Stop()
	for {
		select {
		case <-both.Done():
			return admit()
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := admit(); err != nil {
				return err
			}
		}
	}
}

// forgetLocked forgets the standby that left first, and reports whether one has left.
func (s *Standbys) forgetLocked() bool {
	first := ""
	for name, b := range s.list {
		if b.link == nil && (first == "" || b.heard.Before(s.list[first].heard)) {
			first = name
		}
	}
	delete(s.list, first)
	return first != ""
}

func (s *Standbys) hear(from *standby, told have) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if told.Anew {
		clear(from.whole)
	}
	if len(from.whole)+len(told.Whole) > maxWhole {
		return fmt.Errorf("a standby cannot have more than %d images", maxWhole)
	}
	for _, d := range told.Gone {
		delete(from.whole, d)
	}
	for _, d := range told.Whole {
		from.whole[d] = true
	}
	from.told, from.missing, from.why, from.heard = true, told.Missing, told.Why, time.Now()
	if told.Missing == 0 && !from.ended { // it may tell before its connection is noted
		from.inStep = true
	}
	s.signalLocked()
	return nil
}

// copiesLocked counts the standbys, and those that have an image.
func (s *Standbys) copiesLocked(image digest.Digest) view.ImageCopies {
	var c view.ImageCopies
	for name, b := range s.list {
		if b.link == nil && time.Since(b.heard) > standbyForgotten {
			delete(s.list, name)
			continue
		}
		c.Of++
		if b.whole[image] {
			c.Have++
		}
	}
	return c
}

// Wait waits until all standbys in step have an image, but no longer than it has patience, and says how many have it.
func (s *Standbys) Wait(ctx context.Context, image digest.Digest) view.ImageCopies {
	timer := time.NewTimer(s.Patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		copies, changed, waits := s.copiesLocked(image), s.changed, false
		for _, b := range s.list {
			waits = waits || b.inStep && !b.whole[image]
		}
		s.mu.Unlock()
		if !waits {
			return copies
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return copies
		case <-timer.C:
			s.mu.Lock()
			for _, b := range s.list {
				b.inStep = b.inStep && b.whole[image]
			}
			s.mu.Unlock()
			return copies
		}
	}
}

// Copies says how many standbys have an image; nil: none is known.
func (s *Standbys) Copies(image digest.Digest) *view.ImageCopies {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.copiesLocked(image); c.Of > 0 {
		return &c
	}
	return nil
}

// List shows the standbys.
func (s *Standbys) List() (out []view.ImageStandby) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.list)) {
		b := s.list[name]
		v := view.ImageStandby{Name: name, Connected: b.link != nil, Images: len(b.whole), Missing: b.missing, Why: b.why, Heard: b.heard}
		if !b.told {
			v.Why = "it has not told yet what it has"
		}
		out = append(out, v)
	}
	return out
}

// errAlone says that nobody can be asked for an image that is not here.
var errAlone = errors.New("no standby is connected that may have it")

// RoundTrip implements http.RoundTripper: it asks one standby after the other, last those that did not answer before.
func (s *Standbys) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	var there []*standby
	for _, name := range slices.Sorted(maps.Keys(s.list)) {
		if s.list[name].link != nil {
			there = append(there, s.list[name])
		}
	}
	slices.SortStableFunc(there, func(a, b *standby) int { return a.failed.Compare(b.failed) })
	var links []*link.Duplex
	for _, b := range there {
		links = append(links, b.link)
	}
	none := len(s.list) == 0
	s.mu.Unlock()
	if none { // nor has there been one
		return &http.Response{StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
			Body: http.NoBody, Request: r}, nil
	}
	var last error = &artifact.DepotError{Depot: "the disks of this role's processes", Err: errAlone}
	for n, to := range links {
		res, err := s.ask(r, to, n == len(links)-1)
		if err == nil && (res.StatusCode < http.StatusBadRequest || n == len(links)-1) {
			return res, nil
		}
		if err == nil {
			res.Body.Close()
			continue
		}
		if last = err; r.Context().Err() != nil {
			break
		}
		s.mu.Lock()
		there[n].failed = time.Now()
		s.mu.Unlock()
	}
	return nil, last
}

// ask sends a request to one standby. Unless it is the last one that can be asked, it is not waited for long.
func (s *Standbys) ask(r *http.Request, to *link.Duplex, last bool) (*http.Response, error) {
	if last {
		return to.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(s.Answers, cancel)
	res, err := to.Transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		timer.Stop()
		cancel()
		return nil, err
	}
	if !timer.Stop() {
		res.Body.Close()
		return nil, context.DeadlineExceeded
	}
	res.Body = &askedBody{res.Body, cancel}
	return res, nil
}

// askedBody is the body of an answer that ends its request when it is closed.
type askedBody struct {
	io.ReadCloser
	cancel func()
}

// Close implements io.Closer.
func (b *askedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// restore fetches from standbys what is missing here, whenever one connects.
func (s *Standbys) restore(ctx context.Context, told func(image digest.Digest, err error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.came:
		}
		artifact.Complete(ctx, s.Images, artifact.Completion{Each: func(image digest.Digest, err error) bool {
			told(image, err)
			return true
		}})
	}
}
