//go:build linux

package worker

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

const (
	// measuringTime bounds one request to measure round trips, echoTime the part of it for ICMP.
	measuringTime = 2500 * time.Millisecond
	echoTime      = time.Second
	// echoWait is how long an echo is waited for before the next is sent, and tries how many answers are enough.
	echoWait = 300 * time.Millisecond
	tries    = 3
	// connectTime bounds one try to connect where another port is left to be tried.
	connectTime = 700 * time.Millisecond
	// measuringAtOnce bounds the round trips that are measured at the same time.
	measuringAtOnce = 2 * spec.MaxUsers
)

// serveMeasure answers with the round trips to the targets in the order of the question, in milliseconds; 0 is no answer.
func (q requests) serveMeasure(w http.ResponseWriter, r *http.Request) error {
	targets := r.URL.Query()["target"]
	if len(targets) == 0 || len(targets) > spec.MaxUsers {
		return skerry.Errorf(skerry.CodeInvalid, "%d targets; 1 to %d can be measured", len(targets), spec.MaxUsers)
	}
	type target struct {
		addr netip.Addr
		port int
	}
	list := make([]target, len(targets))
	for i, t := range targets {
		var err error
		if list[i].addr, list[i].port, err = spec.ParseTarget(t); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "target: %s", err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), measuringTime)
	defer cancel()
	out := make([]float64, len(list))
	var wg sync.WaitGroup
	for i, t := range list {
		wg.Go(func() {
			select {
			case q.meter.measuring <- struct{}{}:
				defer func() { <-q.meter.measuring }()
				out[i] = roundTrip(ctx, t.addr, t.port)
			case <-ctx.Done():
			}
		})
	}
	wg.Wait()
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}

// roundTrip measures by ICMP echo, and where that is not answered by the time that a TCP connection takes to be accepted or
// refused: at the port given, else at 443 or 80.
func roundTrip(ctx context.Context, addr netip.Addr, port int) float64 {
	if ms := echo(ctx, addr); ms > 0 {
		return ms
	}
	if port > 0 {
		return connect(ctx, netip.AddrPortFrom(addr, uint16(port)))
	}
	for _, p := range []uint16{443, 80} {
		short, cancel := context.WithTimeout(ctx, connectTime)
		ms := connect(short, netip.AddrPortFrom(addr, p))
		if cancel(); ms > 0 {
			return ms
		}
	}
	return 0
}

// connect gives the shortest of a few times that a TCP connection took, in milliseconds, or 0.
func connect(ctx context.Context, to netip.AddrPort) float64 {
	best := math.Inf(1)
	for range tries {
		begin := time.Now()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		took := float64(time.Since(begin)) / 1e6
		if err == nil {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetLinger(0) // nobody waits for an end of what never began
			}
			c.Close()
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		best = min(best, took)
	}
	if math.IsInf(best, 1) {
		return 0
	}
	return best
}

// echo gives the shortest of a few ICMP round trips, in milliseconds, or 0.
func echo(ctx context.Context, addr netip.Addr) float64 {
	conn, to, err := icmpSocket(addr)
	if err != nil {
		return 0
	}
	defer conn.Close()
	end := time.Now().Add(echoTime)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	ask, want, proto := icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if addr.Is6() {
		ask, want, proto = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	var random [18]byte
	crand.Read(random[:])
	id, body := int(random[0])<<8|int(random[1]), random[2:] // the kernel puts an id of its own on unprivileged sockets
	best, answers := math.Inf(1), 0
	var sent []time.Time
	buf := make([]byte, 1500)
	for answers < tries && time.Now().Before(end) && ctx.Err() == nil {
		data, err := (&icmp.Message{Type: ask, Body: &icmp.Echo{ID: id, Seq: len(sent), Data: body}}).Marshal(nil)
		if err != nil {
			break
		}
		sent = append(sent, time.Now())
		if _, err := conn.WriteTo(data, to); err != nil {
			break // no route, or not allowed
		}
		until := time.Now().Add(echoWait)
		if until.After(end) {
			until = end
		}
		_ = conn.SetReadDeadline(until)
		for {
			n, from, err := conn.ReadFrom(buf)
			at := time.Now()
			if err != nil {
				break
			}
			m, err := icmp.ParseMessage(proto, buf[:n])
			if err != nil || m.Type != want || !sameHost(from, addr) {
				continue // a raw socket hears all
			}
			if e, ok := m.Body.(*icmp.Echo); ok && slices.Equal(e.Data, body) && e.Seq >= 0 && e.Seq < len(sent) {
				best = min(best, float64(at.Sub(sent[e.Seq]))/1e6)
				answers++
				break
			}
		}
	}
	if answers == 0 {
		return 0
	}
	return best
}

// icmpSocket opens an unprivileged socket for echoes where the system allows it, else a raw one.
func icmpSocket(addr netip.Addr) (*icmp.PacketConn, net.Addr, error) {
	plain, raw, any := "udp4", "ip4:icmp", "0.0.0.0"
	if addr.Is6() {
		plain, raw, any = "udp6", "ip6:ipv6-icmp", "::"
	}
	if c, err := icmp.ListenPacket(plain, any); err == nil {
		return c, &net.UDPAddr{IP: addr.AsSlice()}, nil
	}
	c, err := icmp.ListenPacket(raw, any)
	return c, &net.IPAddr{IP: addr.AsSlice()}, err
}

func sameHost(a net.Addr, addr netip.Addr) bool {
	var ip net.IP
	switch v := a.(type) {
	case *net.UDPAddr:
		ip = v.IP
	case *net.IPAddr:
		ip = v.IP
	}
	got, ok := netip.AddrFromSlice(ip)
	return ok && got.Unmap() == addr
}
