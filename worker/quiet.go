//go:build linux

package worker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/worker/core"
)

// quietLook is how often awaitQuiet looks.
const quietLook = 200 * time.Millisecond

// awaitQuiet returns when nobody has connected to an instance for a while, or after the longest time that it may take. The
// kernel counts connections for the whole network namespace; of an instance that has none of its own, or a network stack of
// its own in a sandbox or a machine, nothing is seen, and it is taken for quiet.
func (s *Server) awaitQuiet(ctx context.Context, a core.AwaitQuiet) {
	ctx, cancel := context.WithTimeout(ctx, a.Most)
	defer cancel()
	look := time.NewTicker(quietLook)
	defer look.Stop()
	netns := s.net.namespace(a.ID)
	last, began := uint64(0), time.Now()
	since := began.Add(-a.For)
	for {
		if netns != "" {
			n, err := accepted(netns)
			if err != nil {
				s.opt.Log.Debug("connections of an instance that ends are not known", "instance", string(a.ID), "err", err)
			} else if n != last {
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

// accepted counts the TCP connections that were accepted in a network namespace since it was made.
func accepted(netns string) (n uint64, err error) {
	err = inNetNS(netns, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err == nil {
			n, err = passiveOpens(text)
		}
		return err
	})
	return n, err
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
