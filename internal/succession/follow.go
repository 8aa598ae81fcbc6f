package succession

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// refuser turns links away while the process stands by.
type refuser struct{}

func (refuser) Up(*link.Peer)                  {}
func (refuser) Frame(*link.Peer, wire.Message) {}
func (refuser) Down(*link.Peer, error)         {}

// stand listens for votes and looks for who leads, until this process leads (nil), another does (its error; started again
// it follows), or ctx ends (its error). A process whose store is a copy follows at once, and does not end.
func (o *Leadership) stand(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	found := make(chan error, 1)
	wg.Go(func() { found <- o.seek(ctx) })
	tick := time.NewTicker(o.opt.TTL / 60)
	defer tick.Stop()
	var srv *link.Server
	defer func() {
		if srv != nil {
			srv.Close()
		}
	}()
	for {
		o.with(ctx, func(c *lease.Candidate, now time.Time) { c.Tick(now) })
		o.mu.Lock()
		leads := o.core.State() == lease.Leading
		o.mu.Unlock()
		if leads {
			return nil
		}
		if srv == nil {
			srv = o.listen(ctx, &wg)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-found:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		case <-tick.C:
		}
	}
}

// listen serves the port of the link, or gives nil while it cannot: there is no copy of the store yet, or the port is not free.
func (o *Leadership) listen(ctx context.Context, wg *sync.WaitGroup) *link.Server {
	authority, err := o.authorityOf(ctx)
	if err != nil {
		return nil
	}
	addr := o.opt.Link
	o.mu.Lock()
	if o.addr != nil {
		addr = o.addr.String()
	}
	o.mu.Unlock()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		o.opt.Log.Debug("stand by", "err", err)
		return nil
	}
	srv, err := link.NewServer(link.ServerConfig{TLS: authority.ServerTLS(), Identify: authority.Identify, Handler: refuser{},
		Candidate: o.Candidate, Log: o.opt.Log,
		Admit: func(context.Context, wire.PeerIdentity, *wire.Hello) error {
			return &wire.Refuse{Code: wire.RefuseStandby, Reason: "this machine stands by for the site and does not lead it",
				Hint: "the worker goes on by itself, and chooses one that does", RetryAfter: 250}
		},
		Welcome: func(*link.Peer) (*wire.Welcome, error) { return nil, errors.New("standing by") },
	})
	if err != nil {
		ln.Close()
		return nil
	}
	o.mu.Lock()
	o.auth, o.send, o.addr = authority, nil, ln.Addr().(*net.TCPAddr)
	o.mu.Unlock()
	wg.Go(func() { srv.Serve(ln) })
	return srv
}

// places lists where another candidate may lead: what was said at the start, and the candidates that the site knows.
func (o *Leadership) places(ctx context.Context) []string {
	out := slices.Clone(o.opt.Addrs)
	if rec, err := o.opt.Store.Get(ctx, keyCandidates); err == nil {
		var candidates []wire.LeaseCandidate
		if json.Unmarshal(rec.Value, &candidates) == nil {
			for _, s := range candidates {
				if host, _, err := net.SplitHostPort(s.Addr); err == nil && host != "" && s.Name != o.member.Name() && !slices.Contains(out, s.Addr) {
					out = append(out, s.Addr)
				}
			}
		}
	}
	return out
}

// seek looks for who leads and follows it, until ctx ends. For a store that is this machine's own it gives an error when it has
// found one, and notes that.
func (o *Leadership) seek(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		o.member.Keep(ctx, func() auth.Dialing {
			return auth.Dialing{Addrs: o.places(ctx), Machine: o.opt.Machine, Boot: o.opt.Boot}
		}, nil)
	})
	for ctx.Err() == nil {
		for _, addr := range o.places(ctx) {
			err := o.follow(ctx, addr)
			var over *deposed
			if errors.As(err, &over) {
				return err
			}
			var refuse *wire.Refuse
			if err != nil && !(errors.As(err, &refuse) && refuse.Code == wire.RefuseStandby) && ctx.Err() == nil {
				o.opt.Log.Debug("follow", "addr", addr, "err", err)
			}
			if refuse != nil && refuse.Code == wire.RefuseExpired {
				_ = o.member.Renew(ctx, auth.Dialing{Addrs: []string{addr}, Machine: o.opt.Machine, Boot: o.opt.Boot}) // the next try shows
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// deposed says that another machine leads.
type deposed struct{ leader, addr string }

func (d *deposed) Error() string {
	return fmt.Sprintf("%s (%s) leads the site now; started again, this machine stands by for it", d.leader, d.addr)
}

func (d *deposed) Unwrap() error { return store.ErrDeposed }

// follow asks one address for the store and takes it in for as long as it comes.
func (o *Leadership) follow(ctx context.Context, addr string) error {
	cfg, err := o.tlsOf()
	if err != nil {
		return err
	}
	dial, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(dial, "tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	cfg.NextProtos = []string{link.ProtoCandidate}
	conn := tls.Client(raw, cfg)
	raw.SetDeadline(time.Now().Add(silence))
	if err := conn.HandshakeContext(dial); err != nil {
		return err
	}
	books, err := o.books(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	me := o.address()
	o.mu.Unlock()
	codec := frame.NewCodec()
	if err := frame.Write(conn, codec, &wire.Follow{LeaseTerm: books.LeaseTerm, Revision: books.Revision, Addr: me, Machine: o.opt.Machine,
		Version: o.opt.Version, Keyed: o.opt.Key != ""}); err != nil {
		return err
	}
	in := bufio.NewReaderSize(patient{conn}, 64<<10)
	msg, _, err := frame.NewReader(in, codec, frame.MaxGreeting).Next()
	if err != nil {
		return err
	}
	switch m := msg.(type) {
	case *wire.Refuse:
		return m
	case *wire.Followed:
		if m.Term < books.LeaseTerm {
			return fmt.Errorf("%s leads in term %d, and this copy is of term %d", addr, m.Term, books.LeaseTerm)
		}
		if !Copied(o.opt.Dir) {
			// Its own store was this machine's to write until now. Begun anew, nothing of it is in memory.
			if err := writeNote(o.opt.Dir, copyNote{Of: m.Holder, Since: time.Now().UTC()}); err != nil {
				return err
			}
			return &deposed{m.Holder, addr}
		}
		return o.takeIn(ctx, conn, addr, in, m, books)
	}
	return fmt.Errorf("%s answered with %T: %w", addr, msg, frame.ErrMalformed)
}

// takeIn applies what comes from who leads.
func (o *Leadership) takeIn(ctx context.Context, conn net.Conn, addr string, in *bufio.Reader, f *wire.Followed,
	books lease.Books) (err error) {
	if f.Orphan && books.Revision > f.Common {
		if err := o.setAside(ctx, f.Common, books.Revision, books.LeaseTerm); err != nil {
			return err
		}
	}
	o.opt.Log.Info("follows", "leader", f.Holder, "term", f.Term, "whole", f.Whole, "revision", books.Revision)
	o.mu.Lock()
	o.follows = &followed{f.Holder, addr, f.Term, 0}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.follows = nil
		o.mu.Unlock()
	}()
	// What the leader may count on; nothing until the whole copy that comes is here.
	var have atomic.Int64
	if !f.Whole {
		have.Store(books.Revision)
	}
	var writing sync.Mutex
	ack := func() error {
		writing.Lock()
		defer writing.Unlock()
		conn.SetWriteDeadline(time.Now().Add(silence))
		_, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(have.Load())))
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		// A whole copy takes its time, and the leader gives up who says nothing.
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if ack() != nil {
				conn.Close()
				return
			}
		}
	})
	path := filepath.Join(o.opt.Dir, "incoming")
	defer os.Remove(path)
	var whole *os.File
	defer func() {
		if whole != nil {
			whole.Close()
		}
	}()
	for {
		kind, data, err := readItem(in)
		if err != nil {
			return err
		}
		o.with(ctx, func(c *lease.Candidate, now time.Time) { c.Heard(now, f.Term) })
		var change func() (int64, error)
		switch kind {
		case itemPart:
			if whole == nil {
				if whole, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600); err != nil {
					return err
				}
			}
			if _, err := whole.Write(data); err != nil {
				return err
			}
			continue
		case itemEnd:
			if whole == nil {
				return fmt.Errorf("the end of a copy that did not begin: %w", frame.ErrMalformed)
			}
			if _, err := whole.Seek(0, 0); err != nil {
				return err
			}
			change = func() (int64, error) { return store.Adopt(ctx, o.opt.Store, whole) }
		case itemChanges:
			change = func() (int64, error) { return store.Extend(ctx, o.opt.Store, data) }
		case itemKey:
			if err := o.keepKey(data); err != nil {
				return err
			}
			continue
		case itemAlive:
			at, n := binary.Uvarint(data)
			if n <= 0 {
				return frame.ErrMalformed
			}
			o.mu.Lock()
			o.follows = &followed{f.Holder, addr, f.Term, int64(at)}
			o.mu.Unlock()
			continue
		}
		rev, err := o.extend(ctx, f.Term, change)
		if err != nil {
			return err
		}
		if kind == itemEnd {
			whole.Close()
			whole = nil
		}
		have.Store(rev)
		if err := ack(); err != nil {
			return err
		}
	}
}

// keepKey keeps the leader's key in the place of this machine's own, which opens nothing in the leader's store.
func (o *Leadership) keepKey(key []byte) error {
	if o.opt.Key == "" || len(key) == 0 || len(key) > maxKey {
		return frame.ErrMalformed
	}
	if have, err := os.ReadFile(o.opt.Key); err == nil && bytes.Equal(have, key) {
		return nil
	}
	return vault.ReplaceKey(o.opt.Key, key)
}

// maxKey bounds the file of a key.
const maxKey = 4 << 10

// extend changes the copy, and gives the revision that it ends at. Elections wait meanwhile: what is acknowledged here must be in the
// store that this machine leads from, if it comes to that.
func (o *Leadership) extend(ctx context.Context, term uint64, change func() (int64, error)) (int64, error) {
	o.flushing.Lock()
	defer o.flushing.Unlock()
	o.mu.Lock()
	state := o.core.State()
	o.mu.Unlock()
	if state != lease.Standing {
		return 0, errors.New("this machine was chosen meanwhile")
	}
	// An election that ended between the store's note of the new term and the first lease leaves a history of this machine's own.
	b, err := o.books(ctx)
	if err != nil {
		return 0, err
	}
	if b.LeaseTerm > term {
		return 0, fmt.Errorf("this machine began term %d meanwhile", b.LeaseTerm)
	}
	rev, err := change()
	if err != nil {
		return 0, err
	}
	if b, err = o.books(ctx); err != nil {
		return 0, err
	}
	o.mu.Lock()
	o.core.SetBooks(b)
	o.mu.Unlock()
	return rev, nil
}

// setAside writes what this machine's store has beyond a revision, and nobody else's, into a file of its own: one change a line.
func (o *Leadership) setAside(ctx context.Context, common, last int64, term uint64) error {
	path := filepath.Join(o.opt.Dir, fmt.Sprintf("aside-term%d-%s.jsonl", term, time.Now().UTC().Format("20060102T150405Z")))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	enc := json.NewEncoder(w)
	n := 0
	done := errors.New("done")
	put := func(r store.Record, deleted bool) error {
		n++
		line := struct {
			Revision int64           `json:"revision"`
			Key      string          `json:"key"`
			Deleted  bool            `json:"deleted,omitempty"`
			Value    json.RawMessage `json:"value,omitempty"`
			Bytes    []byte          `json:"bytes,omitempty"` // a value that is not JSON
		}{Revision: r.Revision, Key: r.Key, Deleted: deleted}
		if json.Valid(r.Value) {
			line.Value = r.Value
		} else {
			line.Bytes = r.Value
		}
		return enc.Encode(line)
	}
	err = o.opt.Store.Watch(ctx, "", common, func(events []store.Event) error {
		for _, e := range events {
			if err := put(e.Record, e.Deleted); err != nil {
				return err
			}
			common = e.Revision
		}
		if common >= last {
			return done
		}
		return nil
	})
	if errors.Is(err, store.ErrCompacted) {
		// What changed is not known any more: all of it, then.
		var list []store.Record
		if list, _, err = o.opt.Store.List(ctx, ""); err == nil {
			for _, r := range list {
				if err = put(r, false); err != nil {
					break
				}
			}
		}
	}
	if errors.Is(err, done) {
		err = nil
	}
	if err = errors.Join(err, w.Flush(), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("set aside what only this machine has: %w", err)
	}
	note := readNote(o.opt.Dir)
	note.Aside = append(note.Aside, filepath.Base(path))
	o.opt.Log.Warn("what this machine had written and nobody acknowledged is not part of the site's history; it was set aside", "file", path,
		"changes", n)
	return writeNote(o.opt.Dir, note)
}

var _ tier.Leadership = (*Leadership)(nil)
