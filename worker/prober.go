//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/printed"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// minProbe is the least time between tries, whatever a manifest says: what probes cost is the worker's, and nobody's limit bounds it.
const minProbe = 100 * time.Millisecond

// prober tries the probes of instances, and remembers how long they took.
type prober struct {
	dial     func(ctx context.Context, id skerry.InstanceID, port int) (net.Conn, error)
	driverOf func(handle json.RawMessage) (runtime.Driver, runtime.Handle, error)
	post     func(msg any) // to the core

	mu     sync.Mutex
	passed map[skerry.InstanceID]probeTimes
}

// probe tries one kind of probe of an instance again and again and tells the core each result, until ctx ends.
func (pr *prober) probe(ctx context.Context, a core.ProbeOn, kind core.ProbeKind) {
	p := core.ProbeOf(&a.A.Spec, kind)
	if p == nil {
		return
	}
	wait, early := time.Duration(p.InitialDelay), 10*time.Millisecond
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		tctx, cancel := context.WithTimeout(ctx, time.Duration(p.Timeout))
		begin := time.Now()
		err := pr.try(tctx, p, a)
		cancel()
		if err == nil && kind == core.Readiness {
			pr.probed(a.A.ID, time.Since(begin))
		}
		if ctx.Err() != nil {
			return
		}
		m := core.Probed{ID: a.A.ID, Attempt: a.Attempt, Kind: kind, OK: err == nil}
		if err != nil {
			m.Text = wire.Short(err.Error())
		}
		pr.post(m)
		wait, early = nextTry(time.Duration(p.Interval), early, err != nil && kind != core.Liveness)
	}
}

// nextTry gives the time until the next try. What is not ready yet is asked sooner at first, so that it gets its traffic without waiting
// for an interval: early doubles.
func nextTry(interval, early time.Duration, soon bool) (wait, nextEarly time.Duration) {
	wait = max(interval, minProbe)
	if soon {
		return min(wait, early), min(2*early, time.Second)
	}
	return wait, time.Second
}

func (pr *prober) try(ctx context.Context, p *spec.Probe, a core.ProbeOn) error {
	switch {
	case p.HTTP != nil:
		return pr.probeHTTP(ctx, p.HTTP, a)
	case p.TCP != nil:
		c, err := pr.dial(ctx, a.A.ID, p.TCP.Port)
		if err == nil {
			c.Close()
		}
		return err
	case p.Exec != nil:
		return pr.probeExec(ctx, p.Exec, a)
	}
	return fmt.Errorf("the probe has no check")
}

// address is the instance's, or loopback for one that shares the host's network.
func address(a string) string {
	if a == "" {
		return "127.0.0.1"
	}
	return a
}

func (pr *prober) probeHTTP(ctx context.Context, p *spec.HTTPProbe, a core.ProbeOn) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address(a.Address), strconv.Itoa(p.Port))+p.Path,
		nil)
	if err != nil {
		return err
	}
	for k, v := range p.Headers {
		req.Header.Set(k, v)
		if strings.EqualFold(k, "host") {
			req.Host = v
		}
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswerHeader,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return pr.dial(ctx, a.A.ID, p.Port)
			}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	first := printed.Head{Max: maxAnswer}
	io.CopyN(&first, res.Body, 64<<10)
	if res.StatusCode < 200 || res.StatusCode > 399 {
		status := firstLine(res.Status[:min(len(res.Status), maxAnswer)]) // its words are the instance's
		if line := firstLine(first.String()); line != "" {
			return fmt.Errorf("GET %s answered %s: %s", p.Path, status, line)
		}
		return fmt.Errorf("GET %s answered %s", p.Path, status)
	}
	return nil
}

// maxAnswer is how much of a probe's answer is told, maxAnswerHeader how long the header of what an instance answers may be, in bytes.
const maxAnswer, maxAnswerHeader = 256, 64 << 10

// firstLine is the first line of an answer that has something on it, as far as it is text.
func firstLine(answer string) string {
	for line := range strings.Lines(answer) {
		line = strings.Map(func(r rune) rune {
			if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
				return -1
			}
			return r
		}, strings.TrimSpace(line))
		if line != "" {
			return line
		}
	}
	return ""
}

func (pr *prober) probeExec(ctx context.Context, p *spec.ExecProbe, a core.ProbeOn) error {
	d, h, err := pr.driverOf(a.Handle)
	if err != nil {
		return err
	}
	e, ok := d.(runtime.Execer)
	if !ok {
		return &runtime.Unsupported{Ability: runtime.AbilityExec, Driver: d.Name(), Reason: "use an http or tcp probe"}
	}
	out := &printed.Head{Max: maxAnswer} // one: two would be written to at once
	code, err := e.Exec(ctx, h, runtime.ExecSpec{Args: p.Command, Stdout: out, Stderr: out})
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("status %d: %s", code, firstLine(out.String()))
	}
	return nil
}

// probed notes how long a readiness probe took that passed.
func (pr *prober) probed(id skerry.InstanceID, took time.Duration) {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	p := pr.passed[id]
	p.sum, p.n = p.sum+took, p.n+1
	pr.passed[id] = p
}

// probeTimes sums the readiness probes of an instance since the last report.
type probeTimes struct {
	sum time.Duration
	n   int
}

// probeTime gives the mean of an instance's readiness probes since the last call, in milliseconds, or 0.
func (pr *prober) probeTime(id skerry.InstanceID) float64 {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	p := pr.passed[id]
	delete(pr.passed, id)
	if p.n == 0 {
		return 0
	}
	return float64(p.sum.Microseconds()) / 1000 / float64(p.n)
}
