//go:build linux

package tunnel

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
)

// iperf sends one TCP stream for a second and a half and gives its bits a second.
func iperf(b testing.TB, from, to *space, addr netip.Addr) float64 {
	b.Helper()
	var server *exec.Cmd
	must(b, to.in(func() error {
		server = exec.Command("iperf3", "-s", "-1", "-B", addr.String(), "--forceflush")
		return server.Start()
	}))
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	var out string
	var err error
	for range 50 {
		if out, err = from.try(fmt.Sprintf("sleep 0.05; iperf3 -c %s -t 2 -O 0.5 -J", addr)); err == nil {
			break
		}
	}
	must(b, err)
	var r struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	must(b, json.Unmarshal([]byte(out), &r))
	return r.End.Received.Bits / 1e9
}

// BenchmarkStream compares one TCP stream by the tunnel with one that goes directly, in runs that take turns. Use
// -benchtime 5x.
func BenchmarkStream(b *testing.B) {
	for _, wire := range []bool{true, false} {
		b.Run(map[bool]string{true: "mtu", false: "gso"}[wire], func(b *testing.B) {
			x, y := pair(b, wire)
			peers(x, y, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
			var direct, tunnel []float64
			for b.Loop() {
				direct = append(direct, iperf(b, x.space, y.space, netip.MustParseAddr("10.1.0.2")))
				tunnel = append(tunnel, iperf(b, x.space, y.space, y.inner))
			}
			for _, s := range []*station{x, y} {
				b.Logf("%v", s.status().Counters)
			}
			b.ReportMetric(median(direct), "direct-Gbit/s")
			b.ReportMetric(median(tunnel), "tunnel-Gbit/s")
			b.ReportMetric(median(tunnel)/median(direct), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(l []float64) float64 {
	slices.Sort(l)
	return l[len(l)/2]
}
