//go:build linux

package tunnel

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	wgconn "golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// iperf sends one TCP stream for some seconds and gives its Gbit/s.
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

// wireguardMain runs wireguard-go, for comparison: the device, its port, the private key, the peer's public key and endpoint.
func wireguardMain(args []string) int {
	t, err := tun.CreateTUN(args[0], 1420)
	if err == nil {
		d := device.NewDevice(t, wgconn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
		if err = d.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%s\npublic_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\n", args[2], args[1], args[3], args[4])); err == nil {
			if err = d.Up(); err == nil {
				fmt.Println("up")
				<-d.Wait()
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// wireguard joins two stations by wireguard-go and gives the address of the second.
func wireguard(b testing.TB, x, y *station) netip.Addr {
	b.Helper()
	for _, s := range []struct {
		me, other *station
		addr      string
		at        string
	}{{x, y, "10.50.0.1", "10.1.0.2:51820"}, {y, x, "10.50.0.2", "10.1.0.1:51820"}} {
		pub, err := s.other.key.Public()
		must(b, err)
		key := s.me.key
		cmd := exec.Command("/proc/self/exe", "wireguard", "wg0", "51820", hex.EncodeToString(key[:]), hex.EncodeToString(pub[:]), s.at)
		out, err := cmd.StdoutPipe()
		must(b, err)
		must(b, s.me.in(cmd.Start))
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		_, _ = out.Read(make([]byte, 10))
		s.me.sh("ip addr add " + s.addr + "/24 dev wg0; ip link set wg0 up mtu 1420")
	}
	return netip.MustParseAddr("10.50.0.2")
}

// BenchmarkStream compares one TCP stream by the tunnel, and by wireguard-go, with one that goes directly, in runs that take
// turns. Use -benchtime 5x.
func BenchmarkStream(b *testing.B) {
	for _, wire := range []bool{true, false} {
		b.Run(map[bool]string{true: "mtu", false: "gso"}[wire], func(b *testing.B) {
			x, y := pair(b, wire)
			peers(x, y, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
			wg := wireguard(b, x, y)
			var direct, tunnel, other []float64
			for b.Loop() {
				direct = append(direct, iperf(b, x.space, y.space, netip.MustParseAddr("10.1.0.2")))
				tunnel = append(tunnel, iperf(b, x.space, y.space, y.inner))
				other = append(other, iperf(b, x.space, y.space, wg))
			}
			b.Logf("%.2f\n%.2f\n%.2f", direct, tunnel, other)
			for _, s := range []*station{x, y} {
				b.Logf("%v, memory %s", s.status().Counters, s.memory())
			}
			b.ReportMetric(median(direct), "direct-Gbit/s")
			b.ReportMetric(median(tunnel), "tunnel-Gbit/s")
			b.ReportMetric(median(other), "wireguard-go-Gbit/s")
			b.ReportMetric(median(tunnel)/median(direct), "of-direct")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRelay compares one TCP stream by way of a relay with one that goes directly, both encrypted.
func BenchmarkRelay(b *testing.B) {
	n := newInternet(b)
	var s [4]*station
	for i := range s {
		kind := natNone
		if i < 2 {
			kind = natSymmetric
		}
		s[i], _ = n.join(wire.PeerID(i+1), kind)
	}
	relayed(s[0], s[1])
	relayed(s[2], s[3])
	must(b, transfer(s[0], s[1], false, 1000))
	must(b, transfer(s[2], s[3], false, 1000))
	eventually(b, "a direct path", func() bool { return s[2].path().Path == overlay.PathDirect })
	var direct, relay []float64
	for b.Loop() {
		direct = append(direct, iperf(b, s[2].space, s[3].space, s[3].inner))
		relay = append(relay, iperf(b, s[0].space, s[1].space, s[1].inner))
	}
	b.Logf("%.2f\n%.2f\n%v", direct, relay, n.relay.Stats())
	b.ReportMetric(median(direct), "direct-Gbit/s")
	b.ReportMetric(median(relay), "relay-Gbit/s")
	b.ReportMetric(median(relay)/median(direct), "of-direct")
	b.ReportMetric(0, "ns/op")
}

// memory is the datapath's proportional share.
func (s *station) memory() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.client.Hello().PID))
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "Pss:") {
			return strings.Join(strings.Fields(l)[1:], " ")
		}
	}
	return "unknown"
}

func median(l []float64) float64 {
	l = slices.Sorted(slices.Values(l))
	return l[len(l)/2]
}

// BenchmarkTunnel is one TCP stream by the tunnel alone, to be profiled.
func BenchmarkTunnel(b *testing.B) {
	x, y := pair(b, true)
	peers(x, y, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	var got []float64
	for b.Loop() {
		got = append(got, iperf(b, x.space, y.space, y.inner))
	}
	b.Logf("%.2f", got)
	b.ReportMetric(median(got), "Gbit/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRoundTrip compares round trips of 64 bytes by UDP.
func BenchmarkRoundTrip(b *testing.B) {
	x, y := pair(b, true)
	peers(x, y, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	must(b, transfer(x, y, false, 1000))
	for name, addr := range map[string]netip.Addr{"direct": netip.MustParseAddr("10.1.0.2"), "tunnel": y.inner} {
		b.Run(name, func(b *testing.B) {
			var echo *net.UDPConn
			must(b, y.in(func() (err error) {
				echo, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
				return err
			}))
			defer echo.Close()
			go func() {
				buf := make([]byte, 2000)
				for {
					n, from, err := echo.ReadFromUDPAddrPort(buf)
					if err != nil {
						return
					}
					_, _ = echo.WriteToUDPAddrPort(buf[:n], from)
				}
			}()
			c, err := x.in2(func() (net.Conn, error) { return net.Dial("udp", echo.LocalAddr().String()) })
			must(b, err)
			defer c.Close()
			buf := make([]byte, 64)
			for b.Loop() {
				_, err := c.Write(buf)
				must(b, err)
				_, err = c.Read(buf)
				must(b, err)
			}
		})
	}
}
