//go:build linux

package bpf

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/kerneltest"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// sumErrors are the packets that an instance's stack found damaged.
func sumErrors(i *planetest.Inst) (n int) {
	planetest.Must(i.Host.T, kernel.In(i.NS, func() error {
		for _, f := range []string{"/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6"} {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			var names []string
			for line := range strings.Lines(string(b)) {
				w := strings.Fields(line)
				if len(w) == 2 && strings.HasSuffix(w[0], "InCsumErrors") && w[1] != "0" {
					n++
				}
				if len(names) == len(w) && names[0] == w[0] {
					for k := range w {
						if names[k] == "InCsumErrors" && w[k] != "0" {
							n++
						}
					}
				}
				names = w
			}
		}
		return nil
	}))
	return n
}

// Large amounts arrive as they were sent, whoever cuts them up and puts them together: nobody, the sender's software, the
// receiver before the programs see them.
func TestBulk(t *testing.T) {
	t.Parallel()
	for how, name := range map[way]string{plain4: "plain4", plain6: "plain6"} {
		for _, offload := range []string{"on", "off"} {
			t.Run(name+", offload "+offload, func(t *testing.T) {
				w := newWorld(t, how)
				for _, h := range w.hosts {
					gro := map[string]string{"on": "off", "off": "on"}[offload]
					kerneltest.Run(t, h.NS, fmt.Sprintf("ethtool -K wire tso %[1]s gso %[1]s tx-udp_tnl-segmentation %[1]s tx-udp-segmentation %[1]s gro %[2]s", offload, gro))
				}
				h, client := w.hosts[0], w.Inst("a1")
				for last, to := range []string{"b1", "a2"} {
					w.Inst(to).Serve(80)
					h.Service(7, byte(last), w.Inst(to))
					for _, six := range []bool{false, true} {
						c, err := client.Dial("tcp", planetest.Svc(byte(last), six), 80)
						planetest.Must(t, err)
						_, err = planetest.AskOn(c)
						planetest.Must(t, err)
						if err := planetest.Echo(c, strings.Repeat("0123456789abcdef", 1<<15)); err != nil {
							t.Errorf("%s, IPv6 %v: %.100s", to, six, err)
						}
						c.Close()
						w.segments(t, client, w.Inst(to), byte(last), six)
					}
				}
				for _, i := range []*planetest.Inst{client, w.Inst("b1"), w.Inst("a2")} {
					if n := sumErrors(i); n != 0 {
						t.Errorf("%s found %d kinds of damaged packets", i.Name, n)
					}
				}
			})
		}
	}
}

// segments sends datagrams that the kernel cuts from one large buffer.
func (w *world) segments(t *testing.T, client, to *planetest.Inst, last byte, six bool) {
	t.Helper()
	server := to.Listen(90)
	defer server.Close()
	c, err := client.Dial("udp", planetest.Svc(last, six), 90)
	planetest.Must(t, err)
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	planetest.Must(t, err)
	var e error
	planetest.Must(t, raw.Control(func(fd uintptr) { e = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) }))
	planetest.Must(t, e)
	msg := make([]byte, 10000)
	for i := range 10 {
		copy(msg[i*1000:], bytes.Repeat([]byte{byte('a' + i)}, 1000))
	}
	_, err = c.Write(msg)
	planetest.Must(t, err)
	for i := range 10 {
		if got, _ := planetest.Hears(server, 10*time.Second); got != string(msg[i*1000:i*1000+1000]) {
			t.Fatalf("%s, IPv6 %v: datagram %d has %d bytes", to.Name, six, i, len(got))
		}
	}
}
