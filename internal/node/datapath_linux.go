package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/wire"
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
	keeps  []syscall.Conn // what it keeps
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
			if !errors.Is(err, context.Canceled) && !errors.Is(err, errClosed) {
				d.log.Error("the datapath does not start", "err", err)
			}
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
	go func() {
		select {
		case <-d.end:
			cancel()
		case <-ctx.Done():
		}
	}()
	d.log.Warn("the datapath has stopped; restarting it")
	c, err := tunnel.Start(ctx, d.start)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	keeps := slices.DeleteFunc(slices.Clone(d.keeps), func(c syscall.Conn) bool { // those that were closed meanwhile
		raw, err := c.SyscallConn()
		return err != nil || raw.Control(func(uintptr) {}) != nil
	})
	d.mu.Unlock()
	if err := c.Keep(ctx, keeps...); err != nil {
		d.log.Warn("names are not answered while the agent is restarted", "err", err)
	}
	var told *tunnel.Config
	for {
		d.mu.Lock()
		config, closed := d.config, d.closed
		if !closed && config == told {
			d.client = c
			d.mu.Unlock()
			return c, nil
		}
		d.mu.Unlock()
		if closed {
			return nil, errors.Join(errClosed, c.Close())
		}
		if err := c.Set(ctx, *config); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		told = config
	}
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
	d.config = &c
	client := d.client
	d.mu.Unlock()
	return client.Set(ctx, c)
}

// Status asks how paths fare.
func (d *datapath) Status(ctx context.Context) (tunnel.Status, error) { return d.now().Status(ctx) }

// Unknown tells a peer that its route to an address is old.
func (d *datapath) Unknown(ctx context.Context, peer wire.PeerID, net wire.NetworkID, addr netip.Addr) error {
	return d.now().Unknown(ctx, peer, net, addr)
}

// Look has the datapath see at once whether relays and peers still hear from here.
func (d *datapath) Look(ctx context.Context) error { return d.now().Look(ctx) }

// Ping asks a peer for a sign of life, and gives how long ago the last one came; false: none ever, or it is no peer.
func (d *datapath) Ping(ctx context.Context, peer wire.PeerID) (time.Duration, bool, error) {
	return d.now().Ping(ctx, peer)
}

// Keep has the datapath keep sockets in the place of those that it keeps, now and whenever it starts again.
func (d *datapath) Keep(ctx context.Context, sockets ...syscall.Conn) error {
	d.mu.Lock()
	d.keeps = sockets
	client := d.client
	d.mu.Unlock()
	return client.Keep(ctx, sockets...)
}

// Kept gives the sockets that it keeps.
func (d *datapath) Kept(ctx context.Context) ([]*os.File, error) { return d.now().Kept(ctx) }

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
	err := d.Close()
	c, cerr := tunnel.Connect(ctx, d.start.Dir) // the one that runs now, which may be another than the last that was talked to
	if errors.Is(cerr, tunnel.ErrNotRunning) {
		return err
	}
	if cerr != nil {
		return errors.Join(err, cerr)
	}
	return errors.Join(err, c.Stop(ctx))
}
