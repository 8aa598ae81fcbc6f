package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/worker"
)

// DatapathCommand is the hidden command of this program that runs tunnel.Main.
const DatapathCommand = "datapath"

// datapathDir is where the datapath of a worker listens. It is beside the run directory, in which every name is an
// attachment.
func (c *WorkerConfig) datapathDir() string { return c.RunDir + ".datapath" }

// openOverlay opens the worker's parts of the overlay. Where this machine cannot, the reason is kept for people and the
// worker works without: its instances are reached by ports of the host.
func (w *Worker) openOverlay(ctx context.Context, conf *WorkerConfig, name string) error {
	if conf.NoNetwork || conf.NoOverlay {
		w.NoOverlay = "it is switched off"
		return nil
	}
	dev, err := openDevice(conf, name)
	if err != nil {
		return err
	}
	if dev.device == nil {
		w.NoOverlay = dev.why + "; " + dev.cure
		conf.Log.Warn("this worker takes no part in the overlay", "err", dev.why, "hint", dev.cure)
		return nil
	}
	w.Device = dev.device
	if err := takeOver(ctx, conf, name, dev.path); err != nil {
		return err
	}
	o := &worker.Overlay{Device: dev.device, Port: conf.OverlayPort, Plain: conf.PlainPort, Path: string(dev.path), Why: dev.why,
		Cover: overlay.Cover, Tap: dev.TunnelTap()}
	if dev.path == DataplaneNFTables {
		o.Plain = 0 // it cannot write the tag of plain datagrams; peers are not told of a port for them, and seal too
		conf.Log.Info("packets of the overlay are handled by nftables", "reason", dev.why)
	}
	if w.Kernel, o.NoWireGuard, err = openWireGuard(conf, name, dev.path); err != nil {
		return err
	}
	if w.Kernel != nil {
		o.WireGuard, o.Cover = w.Kernel, overlay.LinkCover
	}
	if !conf.NoIngress {
		o.Ingress = &worker.IngressOptions{Listen: conf.IngressListen, Public: conf.IngressPublic}
	}
	if o.Secret, err = secret(filepath.Join(conf.Dir, "overlay.key")); err != nil {
		return err
	}
	o.Parent = remember(time.Minute, func() netip.Addr { return hostOf(conf.Parent) })
	for _, a := range hostnet.Nameservers("") {
		o.Upstreams = append(o.Upstreams, netip.AddrPortFrom(a, 53))
	}
	dir := conf.datapathDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if w.Tunnel, err = startDatapath(ctx, tunnel.StartOptions{Dir: dir, Command: []string{self, DatapathCommand}, Shelter: w.shelter},
		conf.Log); err != nil {
		return err
	}
	o.Tunnel = w.Tunnel
	w.overlay, w.datapath = o, dir
	return nil
}

// remember asks for an address again only after a while: names may be slow to look up.
func remember(d time.Duration, ask func() netip.Addr) func() netip.Addr {
	var mu sync.Mutex
	var last netip.Addr
	var until time.Time
	return func() netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.After(until) {
			if a := ask(); a.IsValid() {
				last = a
			}
			until = now.Add(d)
			if !last.IsValid() {
				until = now.Add(d / 12)
			}
		}
		return last
	}
}

// hostOf finds the address of the first of some hosts that has one.
func hostOf(parents []string) netip.Addr {
	for _, p := range parents {
		host, _, err := net.SplitHostPort(p)
		if err != nil {
			host = p
		}
		if a, err := netip.ParseAddr(host); err == nil {
			return a.Unmap()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		cancel()
		if err == nil && len(list) > 0 {
			return list[0].Unmap()
		}
	}
	return netip.Addr{}
}

// shelter moves a process that is to outlive the agent out of the agent's service.
func (w *Worker) shelter(pid int) error {
	for _, d := range w.Drivers {
		if s, ok := d.(interface{ Shelter(pid int) error }); ok {
			return s.Shelter(pid)
		}
	}
	return nil
}

// secret reads a key of 32 bytes, or makes one.
func secret(path string) (s tunnel.Secret, err error) {
	data, err := os.ReadFile(path)
	switch {
	case err == nil && len(data) == len(s):
		copy(s[:], data)
		return s, nil
	case err == nil:
		return s, fmt.Errorf("%s has %d bytes, a key has %d; remove it, and the worker makes another", path, len(data), len(s))
	case !errors.Is(err, fs.ErrNotExist):
		return s, err
	}
	rand.Read(s[:])
	return s, os.WriteFile(path, s[:], 0o600)
}

// cleanOverlay ends the datapath of a worker and takes its programs and devices away.
func cleanOverlay(ctx context.Context, c *WorkerConfig, name string) error {
	var errs []error
	dir := c.datapathDir()
	if t, err := tunnel.Connect(ctx, dir); err == nil {
		errs = append(errs, t.Stop(ctx))
	} else if !errors.Is(err, tunnel.ErrNotRunning) {
		errs = append(errs, err)
	}
	errs = append(errs, os.RemoveAll(dir))
	errs = append(errs, cleanDevice(c, name, DataplaneEBPF), cleanDevice(c, name, DataplaneNFTables), wireguard.Remove(name))
	return errors.Join(errs...)
}
