package relay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/overlay/relay/frame"
	"skerry.dev/skerry/wire"
)

const (
	// life is how long a registration lasts; workers renew it every 20 seconds.
	life = 90 * time.Second
	// cookieLife is how long a cookie is good, at least; at most twice that.
	cookieLife = 2 * time.Minute
	// maxHops is how many relays a datagram may pass.
	maxHops = 2
	// askRate is how many registrations of a worker are looked at, a second.
	askRate = 50
)

// table is who is where. Datagrams take the read lock, once for all that came together.
type table struct {
	sync.RWMutex
	name    string // of this relay, to other relays
	workers map[wire.PeerID]*member
	relays  map[string]*member
	tags    map[wire.PeerID]*member // relays, by what stands for them in registrations
	routes  map[wire.PeerID]route
	alias   map[remote]wire.PeerID
	at      map[netip.AddrPort]*member
	secrets [2][32]byte
	turned  time.Time
}

// member is a worker, or another relay.
type member struct {
	id      wire.PeerID
	relay   string // not empty: another relay
	home    *place // of a relay: where its configuration says that it is
	keys    []keyed
	rate    float64
	bucket  bucket
	asks    bucket
	current atomic.Pointer[place] // nil: not registered; of a relay: at home
}

// keyed is a key with what is made of it.
type keyed struct {
	key     [32]byte
	in, out *frame.Tagger
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// place is where a member is.
type place struct {
	addr  netip.AddrPort
	out   *stream   // nil: UDP
	key   int       // which of the keys it used
	until time.Time // of a registration
}

type route struct {
	relay  *member
	remote wire.PeerID
}

type remote struct {
	relay string
	id    wire.PeerID
}

// bucket lets through rate a second, and a tenth of a second's worth at once. The zero value is full.
type bucket struct {
	sync.Mutex
	began bool
	level float64
	at    time.Time
}

func (b *bucket) take(now time.Time, n, rate float64) bool {
	b.Lock()
	defer b.Unlock()
	most := max(rate/10, 256<<10)
	if rate < 1000 { // of registrations, not of bytes
		most = rate
	}
	if !b.began {
		b.began, b.level, b.at = true, most, now
	}
	b.level = min(most, b.level+now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.level < n {
		return false
	}
	b.level -= n
	return true
}

// place gives where a member is now. A relay that has not registered from elsewhere is at home.
func (m *member) place(now time.Time) *place {
	p := m.current.Load()
	if p == nil || now.After(p.until) {
		return m.home
	}
	return p
}

// set makes the table what a configuration says. Registrations of workers that stay as they are stay.
func (t *table) set(c wire.RelayConfig, rate int64) {
	t.Lock()
	defer t.Unlock()
	workers, relays, at := map[wire.PeerID]*member{}, map[string]*member{}, map[netip.AddrPort]*member{}
	tags := map[wire.PeerID]*member{}
	for _, w := range c.Workers {
		m := &member{id: w.ID, rate: float64(w.Rate)}
		if w.Rate == 0 {
			m.rate = float64(rate)
		}
		for _, k := range w.Keys {
			m.keys = append(m.keys, keyed{k, frame.NewTagger(k, true), frame.NewTagger(k, false)})
		}
		if old := t.workers[w.ID]; old != nil {
			if p := old.current.Load(); p != nil {
				for i, k := range m.keys {
					if k.key == old.keys[p.key].key {
						next := *p
						next.key = i
						m.current.Store(&next)
						if p.out == nil {
							at[p.addr] = m
						} else {
							p.out.m.Store(m)
						}
					}
				}
				if p.out != nil && m.current.Load() == nil {
					p.out.close()
				}
			}
		}
		workers[w.ID] = m
	}
	for id, old := range t.workers {
		if p := old.current.Load(); workers[id] == nil && p != nil && p.out != nil {
			p.out.close()
		}
	}
	for _, r := range c.Relays {
		m := &member{relay: r.Name, rate: float64(r.Rate)}
		if r.Rate == 0 {
			m.rate = float64(rate)
		}
		m.keys = []keyed{{r.Key, frame.NewRelayTagger(r.Key, r.Name), frame.NewRelayTagger(r.Key, t.name)}}
		m.home = &place{addr: unmap(r.Addr)}
		relays[r.Name], tags[frame.RelayTag(r.Name)], at[m.home.addr] = m, m, m
		if old := t.relays[r.Name]; old != nil && old.keys[0].key == r.Key {
			if p := old.current.Load(); p != nil && at[p.addr] == nil {
				m.current.Store(p)
				at[p.addr] = m
			}
		}
	}
	t.routes, t.alias = map[wire.PeerID]route{}, map[remote]wire.PeerID{}
	for _, r := range c.Routes {
		t.routes[r.ID] = route{relays[r.Relay], r.Remote}
		t.alias[remote{r.Relay, r.Remote}] = r.ID
	}
	t.workers, t.relays, t.tags, t.at = workers, relays, tags, at
}

// next finds where a datagram of a member goes: to whom, and under which IDs. The lock is held.
func (t *table) next(from *member, hops byte, dst, src wire.PeerID) (to *member, d, s wire.PeerID, ok bool) {
	if hops >= maxHops {
		return nil, 0, 0, false
	}
	if from.relay != "" {
		if src, ok = t.alias[remote{from.relay, src}]; !ok {
			return nil, 0, 0, false
		}
		to = t.workers[dst]
		return to, dst, src, to != nil
	}
	if src != from.id || dst == src {
		return nil, 0, 0, false
	}
	if to = t.workers[dst]; to != nil {
		return to, dst, src, true
	}
	r, ok := t.routes[dst]
	return r.relay, r.remote, src, ok
}

// register takes a registration from an address; out is the stream by which it came, nil for UDP. The answer is nil for
// who has no key.
func (t *table) register(data []byte, from netip.AddrPort, out *stream, now time.Time) []byte {
	q, ok := frame.ParseRegister(data)
	if !ok || q.Answer {
		return nil
	}
	t.Lock()
	defer t.Unlock()
	member := t.workers[q.Peer]
	if q.Relay {
		member = t.tags[q.Peer]
	}
	if member == nil || q.Relay && out != nil || !member.asks.take(now, 1, askRate) {
		return nil
	}
	code := func(k keyed) [32]byte {
		if q.Relay {
			return frame.RelayKey(k.key, member.relay)
		}
		return k.key
	}
	key := -1
	for i, k := range member.keys {
		if frame.CheckRegister(data, code(k)) {
			key = i
			break
		}
	}
	if key < 0 {
		return nil
	}
	if t.turned.IsZero() || now.Sub(t.turned) > cookieLife {
		if t.turned.IsZero() || now.Sub(t.turned) > 2*cookieLife {
			_, _ = rand.Read(t.secrets[0][:])
		}
		t.secrets[1] = t.secrets[0]
		_, _ = rand.Read(t.secrets[0][:])
		t.turned = now
	}
	a := frame.Register{Answer: true, Relay: q.Relay, Peer: q.Peer, Nonce: q.Nonce, Addr: from, Cookie: t.cookie(0, q.Peer, from, out)}
	for i := range t.secrets {
		c := t.cookie(i, q.Peer, from, out)
		a.Done = a.Done || hmac.Equal(c[:], q.Cookie[:])
	}
	if a.Done {
		old := member.current.Load()
		if old != nil && old.out == nil && old.addr != from && (member.home == nil || old.addr != member.home.addr) {
			delete(t.at, old.addr)
		}
		if old != nil && old.out != nil && old.out != out {
			old.out.close()
		}
		if out == nil {
			if other := t.at[from]; other != nil && other != member {
				if other.home != nil && other.home.addr == from {
					return nil
				}
				other.current.Store(nil) // two have no address in common
			}
			t.at[from] = member
		} else {
			out.m.Store(member)
		}
		member.current.Store(&place{addr: from, out: out, key: key, until: now.Add(life)})
	}
	return a.Append(nil, code(member.keys[key]))
}

// cookie is what a worker must send back to prove that it is where it says.
func (t *table) cookie(secret int, id wire.PeerID, from netip.AddrPort, out *stream) (c [frame.CookieLen]byte) {
	h := hmac.New(sha256.New, t.secrets[secret][:])
	var b [8]byte
	binary.BigEndian.PutUint32(b[:], uint32(id))
	binary.BigEndian.PutUint16(b[4:], from.Port())
	if out != nil {
		b[6] = 1
	}
	h.Write(b[:])
	ip := from.Addr().As16()
	h.Write(ip[:])
	copy(c[:], h.Sum(nil))
	return c
}

// gone notes that a stream has ended.
func (t *table) gone(s *stream) {
	t.Lock()
	defer t.Unlock()
	if m := s.m.Load(); m != nil {
		if p := m.current.Load(); p != nil && p.out == s {
			m.current.Store(nil)
		}
	}
}

// sweep forgets the addresses of registrations that have ended.
func (t *table) sweep(now time.Time) (registered int) {
	t.Lock()
	defer t.Unlock()
	for addr, m := range t.at {
		if p := m.place(now); (p == nil || p.addr != addr) && (m.home == nil || m.home.addr != addr) {
			delete(t.at, addr)
		}
	}
	for _, m := range t.workers {
		if m.place(now) != nil {
			registered++
		}
	}
	return registered
}
