//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/worker/core"
)

// quietLook is how often awaitQuiet looks.
const quietLook = 200 * time.Millisecond

// awaitQuiet returns when nobody has connected to an instance for a while and no client waits for its answer, or after the
// longest time that it may take. The kernel shows connections of the whole network namespace; of an instance that has none of
// its own, or a network stack of its own in a sandbox or a machine, nothing is seen, and it is taken for quiet.
func (s *Server) awaitQuiet(ctx context.Context, a core.AwaitQuiet) {
	ctx, cancel := context.WithTimeout(ctx, a.Most)
	defer cancel()
	look := time.NewTicker(quietLook)
	defer look.Stop()
	netns := s.net.namespace(a.ID)
	last, began := uint64(0), time.Now()
	since := began.Add(-a.For)
	for {
		// What it sees any earlier changes nothing.
		if netns != "" && time.Since(began) >= a.Least-a.For {
			n, waiting, err := clients(netns)
			if err != nil {
				s.opt.Log.Debug("connections of an instance that ends are not known", "instance", string(a.ID), "err", err)
			}
			if n != last || waiting {
				last, since = n, time.Now()
			}
		}
		if now := time.Now(); now.Sub(began) >= a.Least && now.Sub(since) >= a.For {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// clients counts the TCP connections that were accepted in a network namespace since it was made, and reports whether one of
// them waits for an answer. After an error, what it gives is true as far as it goes.
func clients(netns string) (accepted uint64, waiting bool, err error) {
	err = inNetNS(netns, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err == nil {
			accepted, err = passiveOpens(text)
		}
		var sockets []*netlink.InetDiagTCPInfoResp
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			list, failed := netlink.SocketDiagTCPInfo(family)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("list connections: %w", failed))
			}
			sockets = append(sockets, list...)
		}
		waiting = unanswered(sockets)
		return err
	})
	return accepted, waiting, err
}

// unanswered reports whether a client of a port that is listened to waits: it was sent nothing yet, perhaps because it or its
// link is slow to ask, or more has come from it since it was last sent something. One that keeps an answered connection open
// does not wait.
func unanswered(sockets []*netlink.InetDiagTCPInfoResp) bool {
	listened := map[uint16]bool{}
	for _, s := range sockets {
		if s.InetDiagMsg.State == netlink.TCP_LISTEN {
			listened[s.InetDiagMsg.ID.SourcePort] = true
		}
	}
	return slices.ContainsFunc(sockets, func(s *netlink.InetDiagTCPInfoResp) bool {
		t := s.TCPInfo
		return s.InetDiagMsg.State == netlink.TCP_ESTABLISHED && listened[s.InetDiagMsg.ID.SourcePort] && t != nil &&
			(t.Data_segs_out == 0 || t.Last_data_recv < t.Last_data_sent) // milliseconds ago
	})
}

// passiveOpens reads tcpPassiveOpens (RFC 4022) from the kernel's /proc/net/snmp: a line of names, then one of values.
func passiveOpens(text []byte) (uint64, error) {
	var names []string
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		f := strings.Fields(in.Text())
		if len(f) == 0 || f[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if name == "PassiveOpens" && i < len(f) {
				return strconv.ParseUint(f[i], 10, 64)
			}
		}
		break
	}
	return 0, fmt.Errorf("/proc/net/snmp has no PassiveOpens of TCP")
}
