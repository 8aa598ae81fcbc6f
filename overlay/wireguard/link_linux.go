package wireguard

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// Options make a Link. Worker and Key are needed.
type Options struct {
	// Worker is the worker's name; the device is named after it, as those of overlay/bpf.
	Worker string
	// Key is the worker's private key, which serves nothing else.
	Key [32]byte
	// Port is the UDP port; 0: the one that the device has, or any.
	Port uint16
	Log  *slog.Logger // nil: nothing is logged

	kernel kernel // nil: the machine's; for tests
}

// kernel is what a Link needs of one that has WireGuard. The device is one, with the name that it was opened for.
type kernel interface {
	// open makes the device, or takes up the one that is there, with the peers that it has.
	open(private [32]byte, port uint16) error
	// set changes peers: those without a prefix go. mtu 0: as it is.
	set(mtu int, peers map[wire.OverlayKey]*peerWish) error
	// read gives errGone when somebody has deleted the device.
	read() (reading, error)
	// send sends a packet into the device, and receive gives one that the programs let through. It ends with close.
	send(b []byte) error
	receive(b []byte) (int, error)
	// ask sends a datagram from the device's port, and gives from which address, when one back is taken.
	ask(port uint16, to netip.AddrPort, b []byte, wait time.Duration, take func([]byte) bool) (netip.Addr, error)
	close() error
	remove() error
}

// peerWish is what is to change of a peer; nil in its place: it goes.
type peerWish struct {
	prefix netip.Prefix
	at     netip.AddrPort // the zero value: as it is
}

var errGone = errors.New("the WireGuard device is gone")

// Link is a worker's WireGuard device. Its methods may be used at the same time.
type Link struct {
	opts   Options
	device string
	own    wire.OverlayKey
	prefix netip.Prefix
	log    *slog.Logger
	k      kernel

	changed chan struct{} // capacity 1
	wake    chan struct{} // capacity 1; for watch
	moved   chan struct{} // capacity 1; for locate
	end     chan struct{}
	once    sync.Once
	done    sync.WaitGroup

	// setting is held while the kernel is told or asked; taken before mu.
	setting sync.Mutex
	mtu     int
	broken  string // what was logged of the kernel last

	mu    sync.Mutex
	port  uint16
	peers map[wire.OverlayKey]*state
	order []wire.OverlayKey // by ID

	relays    []Relay
	reflexive netip.AddrPort
}

// state is what is known of a peer.
type state struct {
	Peer
	prefix netip.Prefix
	*judge
	tried netip.AddrPort // where the kernel was told that it is
}

// Device is the name of a worker's WireGuard device.
func Device(worker string) string {
	h := fnv.New32a()
	h.Write([]byte(worker))
	return fmt.Sprintf("sk%06x.w", h.Sum32()&0xffffff)
}

// New makes the device of a worker, or takes up what an earlier agent left. *Unsupported means that it cannot be here.
func New(opt Options) (*Link, error) {
	if opt.Worker == "" || opt.Key == ([32]byte{}) {
		return nil, errors.New("wireguard: options Worker and Key must be given")
	}
	own, err := Public(opt.Key)
	if err != nil {
		return nil, err
	}
	l := &Link{opts: opt, device: Device(opt.Worker), own: own, prefix: Prefix(own), log: opt.Log, k: opt.kernel,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), end: make(chan struct{}),
		peers: map[wire.OverlayKey]*state{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.k == nil {
		l.k = &machine{name: l.device}
	}
	if err := l.k.open(opt.Key, opt.Port); err != nil {
		return nil, errors.Join(unsupported(err), l.k.close())
	}
	r, err := l.k.read()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wireguard: %w", err), l.k.close())
	}
	l.port = r.port
	l.done.Go(l.listen)
	l.done.Go(l.watch)
	l.done.Go(l.locate)
	return l, nil
}

// Close lets go of the device, which stays as it is.
func (l *Link) Close() error {
	var err error
	l.once.Do(func() {
		close(l.end)
		l.setting.Lock()
		defer l.setting.Unlock()
		err = l.k.close()
	})
	l.done.Wait()
	return err
}

// CleanUp takes the device away, and closes the Link.
func (l *Link) CleanUp() error {
	l.setting.Lock()
	err := l.k.remove()
	l.setting.Unlock()
	return errors.Join(err, l.Close())
}

// Local is the device, for overlay/bpf.
func (l *Link) Local() overlay.Link { return overlay.Link{Device: l.device, Prefix: l.prefix} }

// Public is the worker's key.
func (l *Link) Public() wire.OverlayKey { return l.own }

// Port is the UDP port at which peers reach the device.
func (l *Link) Port() uint16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.port
}

// Changed says that another peer is up, or is no longer, or that Reflexive is another.
func (l *Link) Changed() <-chan struct{} { return l.changed }

// Up are the peers that packets are to go to by the device.
func (l *Link) Up() map[wire.PeerID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[wire.PeerID]bool{}
	for _, s := range l.peers {
		if s.up {
			out[s.ID] = true
		}
	}
	return out
}

// Status tells of each peer how it fares by the device; one that is not up has PathNone and the reason.
func (l *Link) Status() []overlay.PathStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []overlay.PathStatus
	for _, k := range l.order {
		s := l.peers[k]
		p := overlay.PathStatus{Peer: s.ID, Name: s.Name, Path: overlay.PathNone, Reason: s.why, Endpoint: s.last.at, RxBytes: s.last.rx,
			TxBytes: s.last.tx, Handshake: s.last.handshake}
		if s.up {
			p.Path, p.Reason, p.Cipher, p.RTT, p.Loss = overlay.PathWireGuard, "", "ChaCha20-Poly1305", s.rtt, s.loss
		}
		out = append(out, p)
	}
	return out
}

// Set makes the device what a configuration says. Sessions of peers that stay go on.
func (l *Link) Set(ctx context.Context, conf Config) error {
	if err := conf.check(l.own); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	if conf.MTU != 0 {
		l.mtu = conf.MTU + 40
	}
	l.mu.Lock()
	where := !slices.Equal(l.relays, conf.Relays) || len(l.peers) == 0
	l.relays = slices.Clone(conf.Relays)
	want := map[wire.OverlayKey]Peer{}
	l.order = l.order[:0]
	for _, p := range conf.Peers {
		want[p.Key] = p
		l.order = append(l.order, p.Key)
		s := l.peers[p.Key]
		if s == nil {
			l.peers[p.Key] = &state{Peer: p, prefix: Prefix(p.Key)}
			continue
		}
		if s.At != p.At && p.At.IsValid() && s.judge != nil {
			s.hope(time.Now())
			where = true
		}
		s.Peer = p
	}
	for k := range l.peers {
		if _, ok := want[k]; !ok {
			delete(l.peers, k)
		}
	}
	slices.SortFunc(l.order, func(a, b wire.OverlayKey) int { return int(want[a].ID) - int(want[b].ID) })
	l.mu.Unlock()
	err := l.lookLocked(time.Now())
	nudge(l.wake)
	if where {
		nudge(l.moved)
	}
	if err != nil {
		return fmt.Errorf("wireguard: %w", err)
	}
	return nil
}

// lookLocked reads the device, makes its peers what they are to be, and asks those that are to be asked. The caller holds setting.
func (l *Link) lookLocked(now time.Time) error {
	r, err := l.k.read()
	if errors.Is(err, errGone) {
		l.log.Warn("the WireGuard device is gone; it is made anew", "device", l.device)
		l.mu.Lock()
		for _, s := range l.peers {
			s.judge, s.tried = nil, netip.AddrPort{}
		}
		l.mu.Unlock()
		if err = l.k.open(l.opts.Key, l.Port()); err == nil {
			r, err = l.k.read()
		}
	}
	if err != nil {
		return err
	}
	type due struct {
		to     netip.Prefix
		number uint64
	}
	var ask []due
	wish := map[wire.OverlayKey]*peerWish{}
	l.mu.Lock()
	l.port = r.port
	for k := range r.peers {
		if l.peers[k] == nil {
			wish[k] = nil
		}
	}
	turned := false
	for k, s := range l.peers {
		pr, there := r.peers[k]
		if s.judge == nil {
			s.judge = newJudge(now, pr)
			turned = turned || s.up
		}
		if !there {
			wish[k] = &peerWish{prefix: s.prefix}
		}
		// Where it was heard from is better than where it may be, as long as it is heard.
		if s.At.IsValid() && !s.up && s.tried != s.At && (!pr.at.IsValid() || now.Sub(s.rxAt) > askLater || pr.handshake.IsZero()) {
			wish[k] = &peerWish{prefix: s.prefix, at: s.At}
			s.tried, pr.at = s.At, s.At
			s.hope(now)
		}
		was := s.up
		if s.step(now, pr, s.At.IsValid()) {
			var b [8]byte
			_, _ = rand.Read(b[:])
			q := due{s.prefix, binary.NativeEndian.Uint64(b[:])}
			s.asks(now, q.number)
			ask = append(ask, q)
		}
		if was != s.up {
			l.log.Info("WireGuard does not reach a peer any more", "peer", uint32(s.ID), "reason", s.why)
			turned = true
			nudge(l.moved) // to be told where this worker is now
		}
	}
	l.mu.Unlock()
	if err := l.k.set(l.mtu, wish); err != nil {
		return err
	}
	for _, q := range ask {
		if err := l.k.send(question(l.prefix, q.to, q.number)); err != nil {
			l.log.Debug("ask a peer by WireGuard", "err", err) // no handshake yet, or no route: it is an answer that does not come
		}
	}
	if turned {
		l.turn()
	}
	return nil
}

func (l *Link) turn() { nudge(l.changed) }

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// How often the device is looked at while something is going on, and while nothing is.
const (
	lookBusy = 100 * time.Millisecond
	lookIdle = time.Second
)

// watch looks at the device from time to time, as long as there are peers.
func (l *Link) watch() {
	timer := time.NewTimer(lookIdle)
	defer timer.Stop()
	for {
		select {
		case <-l.end:
			return
		case <-l.wake:
		case <-timer.C:
			l.setting.Lock()
			err := l.lookLocked(time.Now())
			said := l.broken
			l.broken = ""
			if err != nil {
				l.broken = err.Error()
				if l.broken != said {
					l.log.Warn("the WireGuard device", "err", err)
				}
			}
			l.setting.Unlock()
		}
		every := lookIdle
		l.mu.Lock()
		for _, s := range l.peers {
			if s.judge == nil || !s.quiet() {
				every = min(lookIdle, lookBusy*time.Duration(1+len(l.peers)/100)) // a look at a thousand takes milliseconds
			}
		}
		none := len(l.peers) == 0
		l.mu.Unlock()
		timer.Stop()
		if !none {
			timer.Reset(every)
		}
	}
}

// listen takes answers.
func (l *Link) listen() {
	data := make([]byte, 2048)
	for {
		n, err := l.k.receive(data)
		select {
		case <-l.end:
			return
		default:
		}
		if err != nil {
			// The device is gone, or was down for a moment; watch makes it anew.
			select {
			case <-l.end:
				return
			case <-time.After(lookIdle):
			}
			continue
		}
		from, number, ok := parseAnswer(data[:n], l.prefix)
		if !ok {
			continue
		}
		now := time.Now()
		l.mu.Lock()
		for _, s := range l.peers {
			if s.prefix != from || s.judge == nil {
				continue
			}
			was := s.up
			if s.answered(now, number) && s.up && !was {
				l.log.Info("WireGuard reaches a peer", "peer", uint32(s.ID), "at", s.last.at)
				l.turn()
			}
		}
		l.mu.Unlock()
	}
}
