package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/tunnel"
)

// datapath keeps a datapath running: one that has died is started again, and told what it was to be. Packets for sealed paths
// are lost in between. It implements worker.Tunnel.
type datapath struct {
	start  tunnel.StartOptions
	log    *slog.Logger
	events chan tunnel.Event
	end    chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	client *tunnel.Client
	config *tunnel.Config // the last one; nil: none yet
	closed bool
}

// startDatapath finds the datapath of a directory, or starts one.
func startDatapath(ctx context.Context, o tunnel.StartOptions, log *slog.Logger) (*datapath, error) {
	c, err := tunnel.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	d := &datapath{start: o, log: log, client: c, events: make(chan tunnel.Event, 256), end: make(chan struct{}), done: make(chan struct{})}
	go d.watch(c)
	return d, nil
}

// watch hands on events, and starts the datapath again when it ends.
func (d *datapath) watch(c *tunnel.Client) {
	defer close(d.done)
	for {
		for e := range c.Events() {
			select {
			case d.events <- e:
			case <-d.end:
				return
			}
		}
		_ = c.Close()
		var err error
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
			select {
			case <-d.end:
				return
			default:
			}
			if c, err = d.again(); err == nil {
				break
			}
			d.log.Error("the datapath does not start", "err", err)
			select {
			case <-time.After(wait):
			case <-d.end:
				return
			}
		}
	}
}

// again starts the datapath and tells it what it was to be.
func (d *datapath) again() (*tunnel.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d.log.Warn("the datapath has ended; it is started again")
	c, err := tunnel.Start(ctx, d.start)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(errClosed, c.Close())
	}
	if d.config != nil {
		if err := c.Set(ctx, *d.config); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	d.client = c
	return c, nil
}

var errClosed = errors.New("the datapath's client is closed")

func (d *datapath) now() *tunnel.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

// Set makes the datapath what the configuration says, now and whenever it starts again.
func (d *datapath) Set(ctx context.Context, c tunnel.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config = &c
	return d.client.Set(ctx, c)
}

// Status asks how paths fare.
func (d *datapath) Status(ctx context.Context) (tunnel.Status, error) { return d.now().Status(ctx) }

// Unknown tells a peer that its route to an address is old.
func (d *datapath) Unknown(ctx context.Context, peer skerry.PeerID, net skerry.NetworkID, addr netip.Addr) error {
	return d.now().Unknown(ctx, peer, net, addr)
}

// Events gives what the datapath comes upon.
func (d *datapath) Events() <-chan tunnel.Event { return d.events }

// Close lets go of the datapath, which runs on.
func (d *datapath) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	c := d.client
	d.mu.Unlock()
	close(d.end)
	err := c.Close()
	<-d.done
	return err
}

// Stop ends the datapath, and lets go of it.
func (d *datapath) Stop(ctx context.Context) error {
	d.mu.Lock()
	closed, c := d.closed, d.client
	if !closed {
		d.closed = true
		close(d.end)
	}
	d.mu.Unlock()
	if closed {
		var err error
		if c, err = tunnel.Connect(ctx, d.start.Dir); errors.Is(err, tunnel.ErrNotRunning) {
			return nil
		} else if err != nil {
			return err
		}
	}
	err := c.Stop(ctx)
	if !closed {
		<-d.done
	}
	return err
}
