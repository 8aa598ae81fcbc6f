package succession

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/lease"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// silence is how long the other end of a candidate's connection may say nothing.
const silence = 5 * time.Second

// Candidate implements tier.Leadership: it serves a worker that offers its vote, or a successor that asks for the store.
func (o *Leadership) Candidate(ctx context.Context, conn *tls.Conn, id wire.PeerIdentity) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	codec := frame.NewCodec()
	conn.SetDeadline(time.Now().Add(silence))
	in := frame.NewReader(conn, codec, frame.MaxGreeting)
	msg, _, err := in.Next()
	if err != nil {
		return
	}
	o.mu.Lock()
	authority, core, standing := o.auth, o.core, o.send == nil
	o.mu.Unlock()
	if authority == nil {
		return
	}
	if standing { // since it began to listen, its copy of the store has gone on: workers have joined, and were revoked
		if authority, err = o.authorityOf(ctx); err != nil {
			o.opt.Log.Debug("candidate", "name", id.Name, "err", err)
			return
		}
	}
	var refuse *wire.Refuse
	err = authority.Admit(ctx, id, nil)
	if _, votes := msg.(*wire.Vote); errors.As(err, &refuse) && refuse.Code == wire.RefuseExpired && votes {
		err = nil // it can renew with whoever leads, and for that somebody must
	}
	switch m := msg.(type) {
	case *wire.Vote:
		if err == nil && core != nil && id.Tier == wire.TierWorker {
			o.vote(ctx, conn, in, codec, id.Name, m)
			return
		}
	case *wire.Follow:
		if err == nil && id.Tier == wire.TierSuccessor {
			err = o.lead(ctx, cancel, conn, codec, id, m)
		}
	}
	if errors.As(err, &refuse) {
		frame.Write(conn, codec, refuse)
	} else if err != nil {
		o.opt.Log.Debug("candidate", "name", id.Name, "err", err)
	}
}

// session is the connection of a worker that offers its vote.
type session struct {
	out  chan wire.Message
	once sync.Once
	over chan struct{}
}

// send never waits: a worker that does not read loses the connection.
func (s *session) send(m wire.Message) {
	select {
	case s.out <- m:
	default:
		s.end()
	}
}

func (s *session) end() { s.once.Do(func() { close(s.over) }) }

func (o *Leadership) vote(ctx context.Context, conn *tls.Conn, in *frame.Reader, codec *frame.Codec, worker string, first *wire.Vote) {
	s := &session{out: make(chan wire.Message, 32), over: make(chan struct{})}
	o.mu.Lock()
	if old := o.voters[worker]; old != nil {
		old.end()
	}
	o.voters[worker] = s
	o.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer conn.Close()
		for {
			select {
			case m := <-s.out:
				conn.SetWriteDeadline(time.Now().Add(silence))
				if frame.Write(conn, codec, m) != nil {
					return
				}
			case <-s.over:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	o.with(ctx, func(c *lease.Candidate, now time.Time) { c.Offered(now, worker, first) })
	for {
		conn.SetReadDeadline(time.Now().Add(silence))
		m, _, err := in.Next()
		if err != nil {
			break
		}
		o.with(ctx, func(c *lease.Candidate, now time.Time) {
			switch m := m.(type) {
			case *wire.Vote:
				c.Offered(now, worker, m)
			case *wire.Promise:
				c.Promised(now, worker, m)
			}
		})
	}
	s.end()
	wg.Wait()
	o.mu.Lock()
	mine := o.voters[worker] == s
	if mine {
		delete(o.voters, worker)
	}
	o.mu.Unlock()
	if mine {
		o.with(ctx, func(c *lease.Candidate, _ time.Time) { c.Gone(worker) })
	}
}

// What goes to a successor after Followed: items of a kind, a length and so many bytes. It answers with revisions of 8 bytes.
const (
	itemChanges = 1 // as store.Tail gives them
	itemAlive   = 2 // the newest revision, a uvarint
	itemPart    = 3 // of a whole copy
	itemEnd     = 4 // of it
	itemKey     = 5 // Options.Key, for who asked for it
)

// maxItem bounds an item.
const maxItem = store.MaxChanges

func writeItem(w io.Writer, kind byte, data []byte) error {
	head := binary.AppendUvarint([]byte{kind}, uint64(len(data)))
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// readItem reads one item.
func readItem(in *bufio.Reader) (kind byte, data []byte, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, err
	}
	if kind < itemChanges || kind > itemKey || n > maxItem {
		return 0, nil, fmt.Errorf("item of kind %d with %d bytes: %w", kind, n, frame.ErrMalformed)
	}
	// Grown as the bytes arrive: a length is only a claim.
	for uint64(len(data)) < n {
		part := min(n-uint64(len(data)), 64<<10)
		at := len(data)
		data = append(data, make([]byte, part)...)
		if _, err := io.ReadFull(in, data[at:]); err != nil {
			return 0, nil, err
		}
	}
	return kind, data, nil
}

// patient is a connection on which the other end may take silence for a piece of what is sent, however much that is in all.
type patient struct{ net.Conn }

func (p patient) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(silence))
	return p.Conn.Read(b)
}

func (p patient) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, 16<<10) {
		p.SetWriteDeadline(time.Now().Add(2 * silence))
		more, err := p.Conn.Write(piece)
		if n += more; err != nil {
			return n, err
		}
	}
	return n, nil
}

// position finds where what a successor has ends within this store: whether it can go on from there, and up to which revision it
// is right.
func (o *Leadership) position(ctx context.Context, f *wire.Follow) (common int64, orphan, known bool, err error) {
	books, err := o.books(ctx)
	if err != nil {
		return 0, false, false, err
	}
	if f.LeaseTerm == 0 {
		return 0, false, false, nil
	}
	end := books.Revision
	list, _, err := o.opt.Store.List(ctx, prefixTerm)
	if err != nil {
		return 0, false, false, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		term, err1 := strconv.ParseUint(list[i].Key[len(prefixTerm):], 10, 64)
		start, err2 := strconv.ParseInt(string(list[i].Value), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, false, false, fmt.Errorf("record %s: %w", list[i].Key, err)
		}
		if term == f.LeaseTerm {
			known = true
			break
		}
		if term < f.LeaseTerm {
			break
		}
		end = start
	}
	return min(end, f.Revision), f.Revision > end || !known, known && f.Revision <= end, nil
}

// stream is the connection on which a successor is given the store.
type stream struct {
	id   wire.PeerIdentity
	addr string // where it listens
	end  func()
}

// lead gives the store to a successor until the connection ends. One that connects again takes the place of its older connection,
// which may not have noticed yet that nobody is there.
func (o *Leadership) lead(ctx context.Context, cancel func(), conn net.Conn, codec *frame.Codec, id wire.PeerIdentity,
	f *wire.Follow) error {
	name := id.Name
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	addr := f.Addr
	if h, port, err := net.SplitHostPort(addr); err == nil && h == "" {
		addr = net.JoinHostPort(host, port)
	}
	s := &stream{id, addr, cancel}
	var took bool
	var term uint64
	o.with(ctx, func(c *lease.Candidate, now time.Time) {
		term = c.Term()
		// Not before workers can be reached on the link: an in-sync replica that leaves could not be struck off the list.
		took = o.send != nil && f.LeaseTerm <= term && o.member.Name() != name && c.Follows(now, wire.LeaseCandidate{Name: name, Addr: addr})
		if !took {
			return
		}
		if old := o.streams[name]; old != nil {
			old.end()
		}
		o.streams[name] = s
	})
	if !took {
		return &wire.Refuse{Code: wire.RefuseStandby, Reason: "this machine does not lead the site, or has successors enough",
			Hint: "it tries the others, and this one again", RetryAfter: 1000}
	}
	defer o.with(context.WithoutCancel(ctx), func(c *lease.Candidate, now time.Time) {
		if o.streams[name] == s {
			delete(o.streams, name)
			c.Left(now, name)
		}
	})
	common, orphan, known, err := o.position(ctx, f)
	if err != nil {
		return err
	}
	answer := &wire.Followed{Term: term, Holder: o.member.Name(), Whole: !known, Orphan: orphan, Common: common,
		TTL: uint32(o.opt.TTL / time.Millisecond)}
	conn.SetDeadline(time.Now().Add(silence))
	if err := frame.Write(conn, codec, answer); err != nil {
		return err
	}
	conn.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel()
		o.hear(ctx, conn, s)
	})
	var mu sync.Mutex
	put := func(kind byte, data []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return writeItem(patient{conn}, kind, data)
	}
	wg.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				rev, err := store.Revision(ctx, o.opt.Store)
				if err != nil || o.Term() != term || put(itemAlive, binary.AppendUvarint(nil, uint64(rev))) != nil {
					return
				}
			}
		}
	})
	if f.Keyed && o.opt.Key != "" {
		key, err := os.ReadFile(o.opt.Key)
		if err == nil {
			err = put(itemKey, key)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	from := f.Revision
	for whole := !known; ; whole = true {
		if whole {
			w := partWriter{put: put}
			if err := store.Dump(ctx, o.opt.Store, &w); err != nil {
				return err
			}
			if err := put(itemEnd, nil); err != nil {
				return err
			}
			from = w.revision
		}
		err := store.Tail(ctx, o.opt.Store, from, func(changes []byte, rev int64) error {
			from = rev
			return put(itemChanges, changes)
		})
		if !errors.Is(err, store.ErrCompacted) || ctx.Err() != nil {
			return nil
		}
	}
}

// partWriter sends a dump on, and reads the revision off its beginning.
type partWriter struct {
	put      func(kind byte, data []byte) error
	revision int64
	begun    bool
}

func (p *partWriter) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		rev, err := store.DumpRevision(b)
		if err != nil {
			return 0, err
		}
		p.revision = rev
	}
	for rest := b; len(rest) > 0; {
		n := min(len(rest), 256<<10)
		if err := p.put(itemPart, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// hear takes a successor's acknowledgements.
func (o *Leadership) hear(ctx context.Context, conn net.Conn, s *stream) {
	name := s.id.Name
	var b [8]byte
	for {
		conn.SetReadDeadline(time.Now().Add(silence))
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return
		}
		rev := int64(binary.BigEndian.Uint64(b[:]))
		o.mu.Lock()
		a := o.auth
		o.mu.Unlock()
		var refuse *wire.Refuse
		if errors.As(a.Admit(ctx, s.id, nil), &refuse) && refuse.Code != wire.RefuseExpired {
			return // it was revoked
		}
		o.with(ctx, func(c *lease.Candidate, now time.Time) {
			if o.streams[name] == s {
				o.lags[name] = lag{s.addr, rev, now}
				c.Acked(now, name, rev)
			}
		})
	}
}

// authorityOf reads the authority from a copy of the store, which must have one.
func (o *Leadership) authorityOf(ctx context.Context) (*auth.Authority, error) {
	rec, err := o.opt.Store.Get(ctx, "auth/ca")
	if err != nil {
		return nil, err
	}
	var ca struct {
		Site string `json:"site"`
	}
	if err := json.Unmarshal(rec.Value, &ca); err != nil {
		return nil, fmt.Errorf("record of the site CA: %w", err)
	}
	return auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: ca.Site, Tier: wire.TierCluster, Store: o.opt.Store, Log: o.opt.Log})
}
