package link_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/gob"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

var (
	workers = flag.Int("link.workers", 10_000, "connections of BenchmarkTenThousand")
	beating = flag.Duration("link.beating", 40*time.Second, "how long BenchmarkTenThousand measures")
	fleet   = flag.String("link.fleet", "", "internal: be the workers that this file describes")
)

// device is one worker of the fleet.
type device struct {
	Name string
	Cert []byte
	Key  ed25519.PrivateKey
}

type fleetFile struct {
	Addr    string
	Devices []device
}

const beatEvery = 10 * time.Second

// BenchmarkTenThousand connects that many workers, each with its own key and mutual TLS, to one server in this process; the
// workers live in a second process. Each sends a beat of 300 bytes every 10 s. It reports what the server needs:
//
//	go test -run '^$' -bench TenThousand -benchtime 1x ./link
func BenchmarkTenThousand(b *testing.B) {
	if *fleet != "" {
		fleetMain(b)
		return
	}
	n := *workers
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); lim.Cur < uint64(n)+200 {
		b.Skip(&testenv.Unsupported{What: fmt.Sprintf("%d connections", n), Why: fmt.Sprintf("%d descriptors are allowed, %d are needed (ulimit -n)", lim.Cur, n+200)})
	}
	var count counter
	// The store of a real cluster: one in memory would be counted with the connections.
	st, err := store.Open(b.Context(), "sqlite:"+filepath.Join(b.TempDir(), "state.db"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	s := newSite(b, "harbour", wire.TierCluster, func(c *link.ServerConfig, a *auth.AuthorityConfig) {
		c.Handler, c.KeepAlive, c.HandshakeTimeout = &count, 30*time.Second, time.Minute
		a.Store = st
	})
	file := fleetFile{Addr: s.addr}
	for i := range n {
		_, key, _ := ed25519.GenerateKey(rand.Reader)
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			b.Fatal(err)
		}
		j, err := s.auth.Join(b.Context(), &wire.Join{Token: s.token(wire.TierWorker), Tier: wire.TierWorker, Name: fmt.Sprintf("w%d", i), CSR: csr}, "")
		if err != nil {
			b.Fatal(err)
		}
		file.Devices = append(file.Devices, device{j.Name, j.Certificate, key})
	}
	path := filepath.Join(b.TempDir(), "fleet")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := gob.NewEncoder(f).Encode(file); err != nil {
		b.Fatal(err)
	}
	f.Close()
	file.Devices = nil
	debug.FreeOSMemory()
	empty := rss(b)
	cmd := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=TenThousand", "-test.benchtime=1x", "-link.fleet="+path)
	cmd.Stderr = os.Stderr
	start, cpu := time.Now(), cpuTime(b)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for count.up.Load() < int64(n) {
		if time.Since(start) > 3*time.Minute {
			b.Fatalf("%d of %d came up; ends: %v", count.up.Load(), n, s.srv.Stats().Ends())
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.ReportMetric(time.Since(start).Seconds(), "connect-s")
	b.ReportMetric((cpuTime(b)-cpu).Seconds()*1e6/float64(n), "connect-cpu-us/worker")
	time.Sleep(beatEvery) // the handshakes' garbage is gone, the beats flow
	frames, start, cpu := count.frames.Load(), time.Now(), cpuTime(b)
	time.Sleep(*beating)
	took := time.Since(start)
	b.ReportMetric(100*float64(cpuTime(b)-cpu)/float64(took), "%core")
	b.ReportMetric(float64(count.frames.Load()-frames)/took.Seconds(), "beats/s")
	b.ReportMetric(float64(rss(b))/(1<<20), "MiB")
	b.ReportMetric(float64(rss(b)-empty)/float64(n)/1024, "KiB/worker")
	if count.down.Load() != 0 {
		b.Errorf("%d connections were lost: %v", count.down.Load(), s.srv.Stats().Ends())
	}
}

type counter struct{ up, down, frames atomic.Int64 }

func (c *counter) Up(*link.Peer)                  { c.up.Add(1) }
func (c *counter) Frame(*link.Peer, wire.Message) { c.frames.Add(1) }
func (c *counter) Down(*link.Peer, error)         { c.down.Add(1) }

func rss(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fleetMain is the second process. It is killed when the first has seen enough.
func fleetMain(b *testing.B) {
	f, err := os.Open(*fleet)
	if err != nil {
		b.Fatal(err)
	}
	var file fleetFile
	if err := gob.NewDecoder(f).Decode(&file); err != nil {
		b.Fatal(err)
	}
	codec := frame.NewCodec()
	beat, err := codec.Encode(&wire.Report{Kind: "beat", Payload: make([]byte, 300)})
	if err != nil {
		b.Fatal(err)
	}
	places := make(chan struct{}, 64) // handshakes at a time
	for i, d := range file.Devices {
		places <- struct{}{}
		go func() {
			raw, err := net.Dial("tcp", file.Addr)
			if err != nil {
				b.Errorf("dial: %v", err)
				return
			}
			conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{link.ProtoLink},
				Certificates: []tls.Certificate{{Certificate: [][]byte{d.Cert}, PrivateKey: d.Key}}})
			err = frame.Write(conn, codec, &wire.Hello{Tier: wire.TierWorker, Name: d.Name, ProtocolMin: 1, ProtocolMax: 1, Boot: d.Name})
			if err == nil {
				_, _, err = frame.NewReader(conn, codec, frame.MaxFrame).Next()
			}
			<-places
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", d.Name, err)
				return
			}
			time.Sleep(beatEvery * time.Duration(i) / time.Duration(len(file.Devices)))
			for {
				if _, err := conn.Write(beat); err != nil {
					return
				}
				time.Sleep(beatEvery)
			}
		}()
	}
	select {}
}
