//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
	seen := func(err error) {
		if err != nil {
			s.opt.Log.Debug("connections of an instance that ends are not known", "instance", string(a.ID), "err", err)
		}
	}
	last, began := uint64(0), time.Now()
	since := began.Add(-a.For)
	for {
		// What it sees any earlier changes nothing.
		if netns != "" && time.Since(began) >= a.Least-a.For {
			tcp, err := countTCP(netns)
			seen(err)
			if tcp.accepted != last {
				last, since = tcp.accepted, time.Now()
			}
		}
		if now := time.Now(); now.Sub(began) >= a.Least && now.Sub(since) >= a.For {
			waits, err := false, error(nil)
			if netns != "" { // last, as it costs the most
				waits, err = clientWaits(netns)
			}
			if seen(err); !waits {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// tcpCounts are what a network namespace counts of TCP: connections that were accepted since it was made, and those that are established.
type tcpCounts struct{ accepted, established uint64 }

// countTCP reads the counts of a network namespace.
func countTCP(netns string) (n tcpCounts, err error) {
	err = inNetNS(netns, func() error {
		n, err = readTCP()
		return err
	})
	return n, err
}

// readTCP reads the counts of the thread's network namespace.
func readTCP() (tcpCounts, error) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return tcpCounts{}, err
	}
	return parseTCP(text)
}

// clientWaits reports whether a client of a network namespace waits for an answer. After an error, true is so. To list connections, the
// kernel goes through those of all namespaces, which takes milliseconds on an idle machine; so it is not asked where it has counted none.
func clientWaits(netns string) (bool, error) {
	var seen clients
	err := inNetNS(netns, func() (err error) {
		if tcp, err := readTCP(); err == nil && tcp.established == 0 {
			return nil
		}
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			// struct inet_diag_req_v2 of sock_diag(7). What is closing is not asked for: it costs an instance nothing, and may be very many.
			req := make([]byte, 56)
			req[0], req[1], req[2] = family, unix.IPPROTO_TCP, 1<<(netlink.INET_DIAG_INFO-1)
			binary.NativeEndian.PutUint32(req[4:], 1<<netlink.TCP_ESTABLISHED|1<<netlink.TCP_LISTEN)
			dump := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
			dump.AddRawData(req)
			failed := dump.ExecuteIter(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
				seen.see(msg)
				return !seen.wait
			})
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("list connections: %w", failed))
			}
		}
		return err
	})
	return seen.wait, err
}

// clients is what is seen of those that are connected to ports that are listened to. One waits if it was sent nothing yet, perhaps
// because it or its link is slow to ask, or if more has come from it since it was last sent something. One that keeps an answered
// connection open does not wait.
type clients struct {
	listened map[uint16]bool
	wait     bool
}

// see takes a socket: a struct inet_diag_msg with attributes. The kernel tells those that listen before others of their family.
func (c *clients) see(msg []byte) {
	const header = 72
	if len(msg) < header {
		return
	}
	port := binary.BigEndian.Uint16(msg[4:])
	switch msg[1] {
	case netlink.TCP_LISTEN:
		if c.listened == nil {
			c.listened = map[uint16]bool{}
		}
		c.listened[port] = true
	case netlink.TCP_ESTABLISHED:
		attrs, err := nl.ParseRouteAttr(msg[header:])
		if err != nil || !c.listened[port] {
			return
		}
		for _, attr := range attrs {
			var info unix.TCPInfo
			const enough = int(unsafe.Offsetof(info.Data_segs_out) + unsafe.Sizeof(info.Data_segs_out)) // Linux 4.6
			if attr.Attr.Type != netlink.INET_DIAG_INFO || len(attr.Value) < enough {
				continue
			}
			at := func(offset uintptr) uint32 { return binary.NativeEndian.Uint32(attr.Value[offset:]) }
			sentAgo, receivedAgo := at(unsafe.Offsetof(info.Last_data_sent)), at(unsafe.Offsetof(info.Last_data_recv)) // milliseconds
			c.wait = c.wait || at(unsafe.Offsetof(info.Data_segs_out)) == 0 || receivedAgo < sentAgo
		}
	}
}

// parseTCP reads tcpPassiveOpens and tcpCurrEstab (RFC 4022) from the kernel's /proc/net/snmp: a line of names, then one of values.
func parseTCP(text []byte) (tcpCounts, error) {
	var names []string
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		fields := strings.Fields(in.Text())
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		var out tcpCounts
		missing := 2
		for i, name := range names {
			to := map[string]*uint64{"PassiveOpens": &out.accepted, "CurrEstab": &out.established}[name]
			if to == nil || i >= len(fields) {
				continue
			}
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return tcpCounts{}, err
			}
			*to = n
			missing--
		}
		if missing == 0 {
			return out, nil
		}
		break
	}
	return tcpCounts{}, fmt.Errorf("/proc/net/snmp has no PassiveOpens and CurrEstab of TCP")
}
