package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/wire"
)

// UpConfig sets up the connection to a parent. All but HTTP are needed.
type UpConfig struct {
	Member  *auth.Member
	Addrs   func() []string
	Boot    string // this run of the agent
	Machine string
	Version string
	// Sets says what is held of the parent's sets.
	Sets  func() []wire.SetAck
	Up    func(w *wire.Welcome)
	Frame func(m wire.Message)
	Down  func(heard time.Duration) // how long ago the parent was heard last
	// HTTP serves what the parent asks over streams.
	HTTP http.Handler
	// Term is the highest one of its site that the child knows of; nil: it knows of none. A parent of a lower one is left.
	Term func() uint64
	// Lease, if not nil, answers leases of the parent, which is at an address.
	Lease func(l *wire.Lease, from string) *wire.Promise
	// Held is for how long nothing of the parent is taken, because its messages made the core panic; nil: always taken.
	Held func() time.Duration
	Site *auth.Authority // a cluster's own, whose CA the root certifies
	Log  *slog.Logger
}

// Up is the child's side of its link.
type Up struct {
	cfg       UpConfig
	client    *link.Client
	http      *link.HTTPStreams
	Transport *http.Transport // to the parent, over streams
	mu        sync.Mutex
	refusal   *wire.Refuse
}

// NewUp makes the client; Run starts it.
func NewUp(cfg UpConfig) (*Up, error) {
	u := &Up{cfg: cfg}
	mux := &link.StreamMux{}
	if cfg.HTTP != nil {
		u.http = link.NewHTTPStreams(cfg.HTTP)
		mux.Handle(link.StreamHTTP, u.http.Serve)
	}
	var err error
	u.client, err = link.NewClient(link.ClientConfig{
		Addrs: cfg.Addrs, TLS: cfg.Member.TLS, Identify: cfg.Member.Identify, Handler: (*upHandler)(u), Streams: mux,
		Hello: func() *wire.Hello {
			h := &wire.Hello{Tier: cfg.Member.Tier(), Name: cfg.Member.Name(), Version: cfg.Version, Sets: cfg.Sets(), Boot: cfg.Boot,
				Machine: cfg.Machine}
			if cfg.Term != nil {
				h.Term = cfg.Term()
			}
			if cfg.Lease != nil {
				h.Features = append(h.Features, wire.FeatureLease)
			}
			if cfg.Member.Tier() == wire.TierCluster {
				h.Features = append(h.Features, wire.FeatureRootUsers)
			} else {
				h.Features = append(h.Features, wire.FeatureChanges)
			}
			return h
		},
		Check: func(w *wire.Welcome) error {
			if cfg.Held != nil {
				if d := cfg.Held(); d > 0 {
					return fmt.Errorf("its messages made this role panic again and again; the link stays down for %s", d.Round(time.Second))
				}
			}
			if cfg.Lease != nil && w.Term < cfg.Term() {
				return fmt.Errorf("it leads in term %d, and this worker has promised itself for term %d", w.Term, cfg.Term())
			}
			return nil
		},
		Refused:    u.refused,
		MinBackoff: 250 * time.Millisecond, MaxBackoff: 15 * time.Second,
		Log: cfg.Log,
	})
	if err != nil {
		if u.http != nil {
			u.http.Close()
		}
		return nil, err
	}
	u.Transport = link.NewTransport(func() (link.Opener, error) { return u.client, nil })
	return u, nil
}

type upHandler Up

func (h *upHandler) Up(p *link.Peer) {
	h.mu.Lock()
	h.refusal = nil
	h.mu.Unlock()
	h.cfg.Up(p.Welcome())
}
func (h *upHandler) Frame(p *link.Peer, m wire.Message) {
	if l, ok := m.(*wire.Lease); ok {
		if h.cfg.Lease != nil {
			p.Send(h.cfg.Lease(l, p.Addr().String()))
		}
		return
	}
	h.cfg.Frame(m)
}
func (h *upHandler) Down(p *link.Peer, _ error) { h.cfg.Down((*Up)(h).heard(p)) }

// refused renews an expired certificate at once. What else is refused, the operator may mend while the client tries again.
func (u *Up) refused(ctx context.Context, r *wire.Refuse) {
	u.mu.Lock()
	u.refusal = r
	u.mu.Unlock()
	u.cfg.Log.Warn("the parent refuses", "code", r.Code, "err", r.Reason, "hint", r.Hint)
	if r.Code == wire.RefuseExpired {
		if err := u.cfg.Member.Renew(ctx, u.dialing()); err != nil {
			u.cfg.Log.Warn("renewal", "err", err)
		}
	}
}

func (u *Up) dialing() auth.Dialing {
	return auth.Dialing{Addrs: u.cfg.Addrs(), Machine: u.cfg.Machine, Boot: u.cfg.Boot, Site: u.cfg.Site}
}

// Run keeps the link and the certificate until ctx ends.
func (u *Up) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		u.cfg.Member.Keep(ctx, u.dialing, func(failures int, err error) {
			if err != nil && !errors.Is(err, context.Canceled) {
				u.cfg.Log.Warn("renewal", "err", err, "failures", failures)
			}
		})
	})
	err := u.client.Run(ctx)
	wg.Wait()
	if u.http != nil {
		u.http.Close()
	}
	u.Transport.CloseIdleConnections()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Send puts a message in line for the parent, if it is connected. One that is too large is lost, which somebody has to hear of.
func (u *Up) Send(m wire.Message) {
	if err := u.client.Send(m); errors.Is(err, link.ErrTooLarge) {
		u.cfg.Log.Error("a message for the parent is not sent", "err", err)
	}
}

// Hurry has a link that is down tried again at once.
func (u *Up) Hurry() { u.client.Hurry() }

// Connected reports whether the link is up, and if not, why.
func (u *Up) Connected() (bool, string) {
	if u.client.Peer() != nil {
		return true, ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusal != nil {
		return false, u.refusal.Reason + "; " + u.refusal.Hint
	}
	if err := u.client.LastError(); err != nil {
		return false, err.Error()
	}
	return false, "not connected yet"
}

// Heard is how long ago the child was surely in touch with the parent, by a frame of it or a beat that it answered; ok is
// false while it is not connected.
func (u *Up) Heard() (ago time.Duration, ok bool) {
	if p := u.client.Peer(); p != nil {
		return u.heard(p), true
	}
	return 0, false
}

// Ask asks the parent for a sign of life, which shows in Heard.
func (u *Up) Ask() {
	if p := u.client.Peer(); p != nil {
		p.Ask()
	}
}

func (u *Up) heard(p *link.Peer) time.Duration {
	ago := p.Heard()
	if at := u.client.Contact(); !at.IsZero() {
		ago = min(ago, time.Since(at))
	}
	return ago
}

// Quality is the last round trip to the parent and the share of beats, or their answers, that are lost; zero: not known.
func (u *Up) Quality() (rtt time.Duration, loss float64) { return u.RTT(), u.client.Loss() }

// RTT is the last round trip to the parent, or zero.
func (u *Up) RTT() time.Duration {
	if p := u.client.Peer(); p != nil {
		return p.RTT()
	}
	return 0
}
