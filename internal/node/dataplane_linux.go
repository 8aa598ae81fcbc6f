package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/bpf"
	"skerry.dev/skerry/overlay/nft"
	"skerry.dev/skerry/overlay/tunnel"
)

// Dataplane says how a worker handles packets of the overlay. The empty one is auto.
type Dataplane string

// Ways to handle packets.
const (
	DataplaneAuto     Dataplane = "auto" // eBPF where the kernel takes it, else nftables
	DataplaneEBPF     Dataplane = "ebpf"
	DataplaneNFTables Dataplane = "nftables"
)

// CheckDataplane reports whether there is such a way.
func CheckDataplane(d Dataplane) error {
	switch d {
	case "", DataplaneAuto, DataplaneEBPF, DataplaneNFTables:
		return nil
	}
	return skerry.Errorf(skerry.CodeInvalid, "--dataplane %q is not known", string(d)).WithHint("it is auto, ebpf or nftables")
}

// device is an overlay's data plane that shares a tap with the tunnel.
type device interface {
	overlay.Device
	TunnelTap() string
}

// opened is a data plane, or why there is none.
type opened struct {
	device
	path Dataplane
	why  string // why not by a better one, or why there is none
	cure string
}

// openDevice opens the best data plane that is allowed and works here.
func openDevice(conf *WorkerConfig, name string) (o opened, err error) {
	if err := CheckDataplane(conf.Dataplane); err != nil {
		return o, err
	}
	o.why = "nftables was requested"
	if conf.Dataplane != DataplaneNFTables {
		dev, err := bpf.New(bpf.Options{Worker: name, Flows: conf.Flows, KeepOlder: upgrade.OnTrial(), Log: conf.Log})
		if err == nil {
			return opened{device: dev, path: DataplaneEBPF}, nil
		}
		u, ok := errors.AsType[*bpf.Unsupported](err)
		if !ok {
			return o, err
		}
		o.why, o.cure = u.Reason, u.Cure
		if conf.Dataplane == DataplaneEBPF {
			return o, nil
		}
	}
	dev, err := nft.New(nft.Options{Worker: name, Log: conf.Log})
	if u, ok := errors.AsType[*nft.Unsupported](err); ok {
		if conf.Dataplane == DataplaneNFTables {
			o.why, o.cure = u.Reason, u.Cure
		} else {
			o.why += "; nftables does not work either: " + u.Reason
			o.cure += ", or: " + u.Cure
		}
		return o, nil
	}
	if err != nil {
		return o, err
	}
	o.device, o.path = dev, DataplaneNFTables
	return o, nil
}

// takeOver makes room where the worker handled packets in another way until now. Its flows end with that.
func takeOver(ctx context.Context, conf *WorkerConfig, name string, to Dataplane) error {
	file := filepath.Join(conf.Dir, "dataplane")
	data, err := os.ReadFile(file)
	was := Dataplane(strings.TrimSpace(string(data)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		was = DataplaneEBPF // before there was another
	case err != nil:
		return err
	}
	if was == to && err == nil {
		return nil
	}
	if was != to && upgrade.OnTrial() {
		return fmt.Errorf("this program would use the data plane %s instead of %s, and close every flow", to, was)
	}
	if was != to {
		if t, err := tunnel.Connect(ctx, conf.datapathDir()); err == nil {
			if err := t.Stop(ctx); err != nil {
				return err
			}
		}
		if err := cleanDevice(conf, name, was); err != nil {
			return err
		}
	}
	return os.WriteFile(file, []byte(to+"\n"), 0o644)
}

// cleanDevice takes a data plane down. One that cannot be here is not.
func cleanDevice(c *WorkerConfig, name string, d Dataplane) error {
	var dev device
	var err error
	if d == DataplaneNFTables {
		dev, err = nft.New(nft.Options{Worker: name, Log: c.Log})
		if _, ok := errors.AsType[*nft.Unsupported](err); ok {
			return nil
		}
	} else {
		dev, err = bpf.New(bpf.Options{Worker: name, Log: c.Log})
		if _, ok := errors.AsType[*bpf.Unsupported](err); ok {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(dev.CleanUp(), dev.Close())
}
