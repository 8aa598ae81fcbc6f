//go:build linux

package nft

import (
	"errors"
	"hash/fnv"
	"log/slog"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// Options configure the data plane of one worker. Worker is required.
type Options struct {
	// Worker is the worker's name; devices and tables are named after it.
	Worker string
	// NetNS is the path of the namespace that counts as the host; empty means the one that New is called in.
	NetNS string
	// Log tells of what is wrong with the machine; nil discards it.
	Log *slog.Logger
}

// Unsupported says that this machine, or the agent's privileges, do not allow this data plane.
type Unsupported struct {
	Reason, Cure string
}

func (u *Unsupported) Error() string { return u.Reason + "; " + u.Cure }

func (o *Options) check() error {
	if o.Worker == "" {
		return errors.New("nft: option Worker is missing; give the worker's name")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *Options) hash() uint32 {
	h := fnv.New32a()
	h.Write([]byte(o.Worker))
	return h.Sum32() & 0xffffff
}

func (o *Options) prefix() string { return kernel.DevicePrefix(o.Worker) }

func (o *Options) tunnelTap() string { return o.prefix() + ".t" }
func (o *Options) agentTap() string  { return o.prefix() + ".m" }

// table names the tables of nftables; overlay/hostnet has one of its own.
func (o *Options) table() string { return o.prefix() + "-overlay" }

// routes is the number of the table of routes, and what begins with it is Skerry's.
func (o *Options) routes() int { return int(0x5b<<24 | o.hash()) }

// rulePriority is where the rules stand that lead to the table of routes: behind the host's own addresses, before all else.
const rulePriority = 7445

// unsupported recognises a lack of privileges or of the kernel.
func unsupported(err error) error {
	var u *Unsupported
	switch {
	case err == nil || errors.As(err, &u):
		return err
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return &Unsupported{Reason: "nftables needs privileges: " + err.Error(), Cure: "run the worker as root, with CAP_NET_ADMIN"}
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENODEV):
		return &Unsupported{Reason: "the kernel lacks a part: " + err.Error(),
			Cure: "it needs Linux 5.16 with nftables (inet, netdev with egress, bridge), connection tracking and tap devices"}
	}
	return err
}
