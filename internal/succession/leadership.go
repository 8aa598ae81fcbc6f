// Package succession puts goroutines, connections and files around package lease: the leadership of a cluster, which leads its
// site or stands by, and the vote of a worker. It decides nothing about who leads. internal/node puts it together with the
// roles, which know it by the interfaces of internal/tier.
package succession

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Options set up a leadership. Dir, Store and Link are needed.
type Options struct {
	Dir   string // data directory of the cluster
	Store store.Store
	// Link is the address to listen on for workers, Public the one at which they reach it, HOST:PORT or HOST; empty: where this
	// machine connects from, with the port of Link.
	Link, Public string
	Addrs        []string // where the cluster may be found, for a machine that joined as successor
	// Key is the file of a key without which a part of the store cannot be read; successors are given it. Empty: there is none.
	Key string
	// TTL is how long workers promise themselves; the metered profile takes more of it.
	TTL           time.Duration
	Machine, Boot string
	// Meanwhile, if not nil, runs while the process stands by before it leads.
	Meanwhile func(ctx context.Context, o *Leadership)
	Version   string
	Log       *slog.Logger
}

// DefaultTTL is the promise's length in the profile fast.
const DefaultTTL = 12 * time.Second

// patience is how long a successor may take to acknowledge before the cluster goes on without it.
const patience = 2 * time.Second

// commitTime bounds a commit that waits for successors.
const commitTime = 15 * time.Second

// Leadership decides, for one process, whether it leads its site. It implements tier.Leadership.
type Leadership struct {
	opt    Options
	member *auth.Member // its candidate; nil: it has none yet

	flushing sync.Mutex // one flush at a time; before mu
	mu       sync.Mutex
	core     *lease.Candidate // nil: the site has no successors
	bound    bool             // what the store says
	changed  chan struct{}
	voters   map[string]*session // workers that offer their votes
	send     func(name string, m wire.Message)
	auth     *auth.Authority
	addr     *net.TCPAddr
	linked   map[string]bool    // workers on the link that understand leases
	follows  *followed          // whom this candidate follows; nil: nobody
	streams  map[string]*stream // successors that are given the store
	lags     map[string]lag     // of successors
}

type followed struct {
	leader string
	addr   string
	term   uint64
	at     int64 // the leader's revision, as it told last
}

type lag struct {
	addr     string
	revision int64
	at       time.Time
}

// Records of succession in the store. Those below meta/ are no core's business.
const (
	keyBound      = "meta/succession/bound"  // exists: with in-sync replicas, this store's owner must be chosen again after a start
	keyVoters     = "meta/succession/voters" // names of workers, JSON
	keyCandidates = "meta/succession/seats"  // where the candidates that were seen last listen, JSON
	prefixTerm    = "meta/succession/reign/" // + term, with the revision before its first
)

// Open prepares a leadership. Lead must follow.
func Open(ctx context.Context, opt Options) (*Leadership, error) {
	if opt.TTL <= 0 {
		opt.TTL = DefaultTTL
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	o := &Leadership{opt: opt, changed: make(chan struct{}), voters: map[string]*session{}, linked: map[string]bool{},
		streams: map[string]*stream{}, lags: map[string]lag{}}
	m, err := auth.OpenMember(filepath.Join(opt.Dir, candidateDir))
	if err != nil && !errors.Is(err, auth.ErrNotJoined) {
		return nil, fmt.Errorf("identity as a successor: %w", err)
	}
	o.member = m
	_, err = opt.Store.Get(ctx, keyBound)
	o.bound = err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return o, nil
}

// Join makes this machine a successor of the cluster that a token is of. It is no error if it is one already.
func Join(ctx context.Context, dir, name, token, version, machine, boot string, addrs []string) (*auth.Member, error) {
	m, err := auth.OpenMember(filepath.Join(dir, candidateDir))
	if err == nil || !errors.Is(err, auth.ErrNotJoined) {
		return m, err
	}
	if token == "" {
		return nil, errors.New("this machine is no successor yet; get a token with `skerry token create --role successor` at the cluster, and start with --join TOKEN")
	}
	m, err = auth.Enter(ctx, auth.Entry{Dialing: auth.Dialing{Addrs: addrs, Machine: machine, Boot: boot},
		Dir: filepath.Join(dir, candidateDir), Token: token, Tier: wire.TierSuccessor, Name: name, Version: version})
	if err != nil {
		return nil, err
	}
	return m, writeNote(dir, copyNote{Since: time.Now().UTC()})
}

// Site gives the site of the candidate that a data directory holds, if it holds one.
func Site(dir string) (string, bool) {
	m, err := auth.OpenMember(filepath.Join(dir, candidateDir))
	if err != nil {
		return "", false
	}
	return m.Site(), true
}

// candidate is what this machine is called among the candidates, and where it listens.
func (o *Leadership) candidate() wire.LeaseCandidate {
	return wire.LeaseCandidate{Name: o.member.Name(), Addr: o.address()}
}

// address is where workers reach this machine; without a host it is for others to complete.
func (o *Leadership) address() string {
	link := o.opt.Link
	if o.addr != nil {
		link = o.addr.String()
	}
	host, port, err := net.SplitHostPort(link)
	if err != nil {
		return link
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	if p := o.opt.Public; p != "" {
		if h, q, err := net.SplitHostPort(p); err == nil {
			host, port = h, q
		} else {
			host = p
		}
	}
	return net.JoinHostPort(host, port)
}

// books reads what the store says of the site's succession.
func (o *Leadership) books(ctx context.Context) (lease.Books, error) {
	var b lease.Books
	rec, err := o.opt.Store.Get(ctx, tier.KeyLife)
	if errors.Is(err, store.ErrNotFound) {
		return b, nil // nothing was copied yet
	}
	if err != nil {
		return b, err
	}
	var life tier.Life
	if err := json.Unmarshal(rec.Value, &life); err != nil {
		return b, fmt.Errorf("record %s: %w", tier.KeyLife, err)
	}
	b.LeaseTerm = life.Epoch
	if rec, err := o.opt.Store.Get(ctx, keyVoters); err == nil {
		if err := json.Unmarshal(rec.Value, &b.Voters); err != nil {
			return b, fmt.Errorf("record %s: %w", keyVoters, err)
		}
	}
	list, rev, err := o.opt.Store.List(ctx, "auth/enrolled/"+string(wire.TierSuccessor)+"/")
	if err != nil {
		return b, err
	}
	b.Revision = rev
	var candidates []auth.Enrolled
	for _, r := range list {
		var e auth.Enrolled
		if err := json.Unmarshal(r.Value, &e); err != nil {
			return b, fmt.Errorf("record %s: %w", r.Key, err)
		}
		candidates = append(candidates, e)
	}
	slices.SortStableFunc(candidates, func(x, y auth.Enrolled) int { return x.Joined.Compare(y.Joined) })
	for _, e := range candidates {
		b.Order = append(b.Order, e.Name)
	}
	return b, nil
}

// Lead waits until this process leads the site: at once if no successor was ever named, else when the workers have chosen it. It
// gives an error when ctx ends.
func (o *Leadership) Lead(ctx context.Context) error {
	books, err := o.books(ctx)
	if err != nil {
		return err
	}
	copied, err := o.copied(books)
	if err != nil {
		return err
	}
	switch {
	case !copied && !o.bound && (len(books.Order) == 0 || o.member == nil):
		return nil
	case !copied && !o.bound:
		return o.alone(ctx)
	case o.member == nil:
		return errors.New("the store says that the site has successors, and the identity of this machine among them is missing (directory seat): restore the whole data directory, or `skerry restore` a backup")
	}
	o.mu.Lock()
	o.core = lease.New(lease.Options{Me: o.candidate(), TTL: o.opt.TTL, Patience: patience})
	o.core.SetBooks(books)
	o.mu.Unlock()
	o.opt.Log.Info("this machine stands by for the site, and leads when most of its workers choose it", "candidate", o.member.Name(), "term",
		books.LeaseTerm)
	if o.opt.Meanwhile == nil {
		return o.stand(ctx)
	}
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { o.opt.Meanwhile(beside, o) })
	defer wg.Wait() // what it has opened is closed before the process leads
	defer cancel()
	return o.stand(ctx)
}

// Leader gives where the machine that this one follows listens, and how to show oneself there.
func (o *Leadership) Leader() (addr string, cfg *tls.Config, err error) {
	o.mu.Lock()
	follows := o.follows
	o.mu.Unlock()
	if follows == nil {
		return "", nil, errors.New("this machine follows none")
	}
	cfg, err = o.tlsOf()
	return follows.addr, cfg, err
}

// copied reports whether this machine's store is, or is to be, a copy. A candidate with nothing in its store begins no site of its own: it
// ended while it joined, or lost its store.
func (o *Leadership) copied(b lease.Books) (bool, error) {
	if Copied(o.opt.Dir) {
		return true, nil
	}
	if o.member == nil || b.LeaseTerm != 0 {
		return false, nil
	}
	o.opt.Log.Warn("this machine has a seat and nothing in its store, so it waits for a copy of the site's; to begin anew here instead, remove these",
		"paths", filepath.Join(o.opt.Dir, candidateDir)+" "+filepath.Join(o.opt.Dir, copyFile))
	return true, writeNote(o.opt.Dir, copyNote{Since: time.Now().UTC()})
}

// alone leads without an election, in a new term.
func (o *Leadership) alone(ctx context.Context) error {
	if _, err := o.beginTerm(ctx, 0); err != nil {
		return err
	}
	b, err := o.books(ctx)
	if err != nil {
		return err
	}
	core := lease.New(lease.Options{Me: o.candidate(), TTL: o.opt.TTL, Patience: patience})
	core.SetBooks(b)
	core.Alone(time.Now())
	o.mu.Lock()
	o.core = core
	o.signalLocked()
	o.mu.Unlock()
	// Whoever committed past this leadership has done so before it is read.
	rev, err := store.Revision(ctx, o.opt.Store)
	o.with(ctx, func(c *lease.Candidate, _ time.Time) { c.Committed(rev) })
	return err
}

// keepTerms is how many ends of earlier terms are kept; who missed more gets a whole copy.
const keepTerms = 64

// beginTerm writes a term into the store, 0: the next one.
func (o *Leadership) beginTerm(ctx context.Context, term uint64) (int64, error) {
	rec, err := o.opt.Store.Get(ctx, tier.KeyLife)
	if err != nil {
		return 0, err
	}
	var life tier.Life
	if err := json.Unmarshal(rec.Value, &life); err != nil {
		return 0, err
	}
	if term == 0 {
		term = life.Epoch + 1
	}
	life.Epoch = term
	value, err := json.Marshal(life)
	if err != nil {
		return 0, err
	}
	terms, rev, err := o.opt.Store.List(ctx, prefixTerm)
	if err != nil {
		return 0, err
	}
	ops := []store.Op{{Key: tier.KeyLife, Value: value, Expect: &rec.Revision},
		{Key: fmt.Sprintf("%s%020d", prefixTerm, term), Value: fmt.Append(nil, rev)}}
	for i := range max(0, len(terms)-keepTerms) {
		ops = append(ops, store.Op{Key: terms[i].Key, Delete: true})
	}
	return o.opt.Store.Commit(ctx, ops)
}

func (o *Leadership) signalLocked() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// with changes the core, and then writes and sends what follows.
func (o *Leadership) with(ctx context.Context, fn func(c *lease.Candidate, now time.Time)) {
	o.flushing.Lock()
	defer o.flushing.Unlock()
	o.mu.Lock()
	if o.core == nil {
		o.mu.Unlock()
		return
	}
	before := o.core.State()
	fn(o.core, time.Now())
	err := o.settle(ctx)
	after := o.core.State()
	out := o.core.Take()
	sessions, send := o.voters, o.send
	to := map[string]*session{}
	for _, m := range out {
		to[m.To] = sessions[m.To]
	}
	o.signalLocked()
	why := o.core.Why()
	o.mu.Unlock()
	if err != nil {
		o.opt.Log.Error("write down who leads", "err", err)
		return // nothing is sent that the store does not know
	}
	for _, m := range out {
		if s := to[m.To]; s != nil {
			s.send(m.Msg.(wire.Message))
		} else if send != nil {
			send(m.To, m.Msg.(wire.Message))
		}
	}
	if before != after {
		o.opt.Log.Info("succession", "was", string(before), "is", string(after), "term", o.Term(), "why", why)
	}
}

// settle writes into the store what must be there before anything is sent. It gives up o.mu while it does; o.flushing keeps
// others out.
func (o *Leadership) settle(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if o.core.Ready() {
		term := o.core.Term()
		o.mu.Unlock()
		rev, err := o.beginTerm(ctx, term)
		if err == nil {
			err = removeNote(o.opt.Dir)
		}
		o.mu.Lock()
		if err != nil {
			o.core.Resign("its store takes no writes")
			return err
		}
		o.core.Begin(rev)
	}
	if o.core.State() != lease.Leading || o.core.Bound() == o.bound {
		return nil
	}
	bound := !o.bound
	o.mu.Unlock()
	rev, err := o.opt.Store.Commit(ctx, []store.Op{{Key: keyBound, Value: []byte("{}"), Delete: !bound}})
	o.mu.Lock()
	if err != nil {
		o.core.Resign("its store takes no writes")
		return err
	}
	o.bound = bound
	o.core.Committed(rev)
	return nil
}

// removeNote makes the store this machine's own; what was set aside stays named.
func removeNote(dir string) error {
	err := os.Remove(filepath.Join(dir, copyFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Term is the one in which this process leads, or the last that it knows of.
func (o *Leadership) Term() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.core == nil {
		return 0
	}
	return o.core.Term()
}

// Serves implements tier.Leadership.
func (o *Leadership) Serves(a *auth.Authority, addr *net.TCPAddr, send func(name string, m wire.Message)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.auth, o.addr, o.send = a, addr, send
	clear(o.linked)
	o.signalLocked()
}

// Came implements tier.Leadership.
func (o *Leadership) Came(hello *wire.Hello) {
	if !slices.Contains(hello.Features, wire.FeatureLease) {
		return
	}
	o.mu.Lock()
	o.linked[hello.Name] = true
	o.mu.Unlock()
	o.with(context.Background(), func(c *lease.Candidate, now time.Time) { c.Came(now, hello.Name) })
}

// Left implements tier.Leadership.
func (o *Leadership) Left(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.linked, name)
}

// Promised implements tier.Leadership.
func (o *Leadership) Promised(name string, p *wire.Promise) {
	o.with(context.Background(), func(c *lease.Candidate, now time.Time) { c.Promised(now, name, p) })
}

// Lost implements tier.Leadership.
func (o *Leadership) Lost(ctx context.Context) error {
	for {
		o.mu.Lock()
		leads, why, changed := o.core == nil || o.core.State() == lease.Leading, "", o.changed
		if !leads {
			why = o.core.Why()
		}
		o.mu.Unlock()
		if !leads {
			return notLeading(why)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// reviewEvery is how often a leader with successors looks at what they and the workers have become. One without waits for the first.
const reviewEvery = time.Second

// Run keeps the leadership until ctx ends. It gives an error when another machine leads: started again, the process stands by.
func (o *Leadership) Run(ctx context.Context) error {
	tick, review := time.NewTicker(o.opt.TTL/60), time.NewTicker(reviewEvery)
	defer tick.Stop()
	defer review.Stop()
	ticks, reviews := true, true
	var enrolled <-chan struct{} // of the authority's members, since the last review without successors
	look := func() bool {
		err := o.review(ctx)
		if err != nil && ctx.Err() == nil {
			o.opt.Log.Warn("succession", "err", err)
		}
		return err == nil
	}
	for {
		o.mu.Lock()
		standing := o.core != nil && o.core.State() != lease.Leading
		alone, asleep, authority, changed := o.core == nil, o.core == nil || o.core.Asleep(), o.auth, o.changed
		o.mu.Unlock()
		if standing {
			if err := o.stand(ctx); err != nil {
				return err
			}
			continue
		}
		ticks = pace(tick, ticks, !asleep, o.opt.TTL/60)
		if ticks {
			changed = nil // the next tick sees it
		}
		if alone && authority != nil {
			if now := authority.Changed(); now != enrolled {
				enrolled = now
				reviews = pace(review, reviews, !look(), reviewEvery) // what did not work is tried again
				continue
			}
		} else {
			enrolled, reviews = nil, pace(review, reviews, !alone, reviewEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-enrolled:
		case <-review.C:
			if alone {
				enrolled = nil
			} else {
				look()
			}
		case <-tick.C:
			o.with(ctx, func(c *lease.Candidate, now time.Time) { c.Tick(now) })
		}
	}
}

// pace has a ticker run or rest.
func pace(t *time.Ticker, runs, should bool, every time.Duration) bool {
	if runs && !should {
		t.Stop()
	} else if !runs && should {
		t.Reset(every)
	}
	return should
}

// tlsOf is how this candidate shows itself to another.
func (o *Leadership) tlsOf() (*tls.Config, error) { return o.member.TLS() }
