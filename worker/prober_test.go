//go:build linux

package worker

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// What an instance answers a probe is told in few words, whatever it is: a status of megabytes, or something that is no HTTP.
func TestProbeOfALongAnswer(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	for what, answer := range map[string]string{
		"a status":          "HTTP/1.1 500 " + long[:40<<10] + "\r\n\r\n",
		"a longer status":   "HTTP/1.1 500 " + long + "\r\n\r\n",
		"no HTTP":           long[:60<<10] + "\r\n\r\n",
		"a broken header":   "HTTP/1.1 200 OK\r\n" + long[:60<<10] + "\r\n\r\n",
		"a long body":       "HTTP/1.1 500 no\r\n\r\n" + long,
		"a status in parts": "HTTP/1.1 100 " + long[:30<<10] + "\r\n\r\nHTTP/1.1 500 " + long[:30<<10] + "\r\n\r\n",
	} {
		told := make(chan core.Probed, 1)
		pr := &prober{passed: map[skerry.InstanceID]probeTimes{}, dial: func(context.Context, skerry.InstanceID, int) (net.Conn, error) {
			mine, its := net.Pipe()
			go func() {
				defer its.Close()
				go io.Copy(io.Discard, its)
				io.WriteString(its, answer)
			}()
			return mine, nil
		}, post: func(msg any) {
			if m, ok := msg.(core.Probed); ok {
				select {
				case told <- m:
				default:
				}
			}
		}}
		a := core.ProbeOn{A: spec.Assignment{ID: "web-1", Spec: spec.ServiceSpec{Probes: spec.Probes{Readiness: &spec.Probe{
			HTTP: &spec.HTTPProbe{Port: 80, Path: "/"}, Timeout: spec.Duration(5 * time.Second), Interval: spec.Duration(time.Hour)}}}}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			pr.probe(ctx, a, core.Readiness)
		}()
		if m := <-told; m.OK || len(m.Text) > 1<<10 || m.Text == "" {
			t.Errorf("%s: passed %t, and %d bytes are told of it", what, m.OK, len(m.Text))
		}
		cancel()
		<-done
	}
}
