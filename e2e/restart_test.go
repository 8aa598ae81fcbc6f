//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
)

// caller does one thing again and again, and counts what fails.
type caller struct {
	good, bad atomic.Int64
	last      atomic.Pointer[error]
	longest   time.Duration // read after end
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// call begins with one after the other, each on the same thread.
func call(t *testing.T, begin func() error, once func(ctx context.Context) error) *caller {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &caller{stop: cancel}
	c.done.Go(func() { thread.Run(func() { c.repeat(ctx, begin, once) }) }) // begin may have entered another namespace
	t.Cleanup(c.end)
	return c
}

func (c *caller) repeat(ctx context.Context, begin func() error, once func(ctx context.Context) error) {
	if err := begin(); err != nil {
		c.bad.Add(1)
		c.last.Store(&err)
		return
	}
	for ctx.Err() == nil {
		start := time.Now()
		err := once(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			c.bad.Add(1)
			c.last.Store(&err)
		default:
			c.good.Add(1)
			c.longest = max(c.longest, time.Since(start))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *caller) end() {
	c.stop()
	c.done.Wait()
}

func (c *caller) text() string {
	out := fmt.Sprintf("%d of %d failed, the longest took %s", c.bad.Load(), c.good.Load()+c.bad.Load(), c.longest.Round(time.Millisecond))
	if err := c.last.Load(); err != nil {
		out += ", the last: " + (*err).Error()
	}
	return out
}

// visit asks an address for a page of a host, each time by a connection of its own.
func visit(t *testing.T, url, host string) *caller {
	transport := &http.Transport{DisableKeepAlives: true}
	return call(t, func() error { return nil }, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r.Host = host
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 500 {
			return fmt.Errorf("status %s, %v", resp.Status, err)
		}
		return nil
	})
}

// lookUp asks for the address of a name where a process runs, as its C library would: two times, for five seconds each.
func lookUp(t *testing.T, pid int, name string) *caller {
	conf, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/resolv.conf", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(conf), "nameserver ")
	server, _, _ := strings.Cut(rest, "\n")
	q := dnsmessage.Message{Header: dnsmessage.Header{RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."),
		Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	return call(t, func() error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	}, func(context.Context) error {
		c, err := net.Dial("udp", net.JoinHostPort(server, "53"))
		if err != nil {
			return err
		}
		defer c.Close()
		for range 2 {
			q.ID++
			packed, err := q.Pack()
			if err != nil {
				return err
			}
			_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // on a starved machine, the next agent is long in coming
			if _, err = c.Write(packed); err != nil {
				return err
			}
			b := make([]byte, 1500)
			n, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if err != nil {
				return err
			}
			var a dnsmessage.Message
			if err := a.Unpack(b[:n]); err != nil || a.RCode != dnsmessage.RCodeSuccess || len(a.Answers) == 0 {
				return fmt.Errorf("%s: %s, %d answers, %v", q.Questions[0].Name, a.RCode, len(a.Answers), err)
			}
			return nil
		}
		return os.ErrDeadlineExceeded
	})
}

// TestAgentRestarts ends the agent of a worker again and again, by kill and in order, while clients come to its ingress and an instance asks
// for names. Whoever comes while there is no agent waits for the next one. Of those that were being served when it was killed, some fail.
func TestAgentRestarts(t *testing.T) {
	p := newProcesses(t, "worker")
	_, _, worker := p.threeRoles()
	c := login(t, "https://127.0.0.1:7480", p.data("root"))
	defer c.Close()
	pushProgram(t, c, p.dir, "test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	applied(t, c, "shop", []byte(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"shop"},"spec":{"services":[{"name":"web","image":"test/catalog:1",
"ports":[{"name":"http","port":8080}],"probes":{"readiness":{"tcp":{"port":8080}}},"ingress":[{"host":"shop.example.org","port":"http"}],"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`), 1)
	list, err := c.Instances(t.Context(), api.InstanceFilter{App: "shop"})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	web := visit(t, "http://127.0.0.1/", "shop.example.org")
	names := lookUp(t, containerPIDs(t, p.data("worker"))[list[0].ID], "web")
	t.Cleanup(func() { t.Logf("requests: %s; look-ups: %s", web.text(), names.text()) })
	await(t, "both are answered", func() bool { return web.good.Load() > 20 && names.good.Load() > 20 })
	web.bad.Store(0)
	names.bad.Store(0)

	kills := testenv.Times(2, 20)
	for n := range 2 * kills {
		if n%2 == 0 {
			worker.kill()
		} else { // in order, it lets go of nobody
			failed := web.bad.Load()
			_ = worker.cmd.Process.Signal(syscall.SIGTERM)
			_ = worker.cmd.Wait()
			if bad := web.bad.Load() - failed; bad > 0 {
				t.Errorf("%d requests failed at an end in order: %s", bad, web.text())
			}
		}
		worker.start(t, p.program, p.log)
		a, b := web.good.Load(), names.good.Load()
		await(t, fmt.Sprintf("after end %d both are answered", n), func() bool { return web.good.Load() > a+20 && names.good.Load() > b+20 })
	}
	web.end()
	names.end()
	t.Logf("%d kills; requests: %s; look-ups: %s", kills, web.text(), names.text())
	if bad := web.bad.Load(); bad > int64(kills) { // one client: at most one request is under way
		t.Error("requests: " + web.text())
	}
	if names.bad.Load() > 0 {
		t.Error("look-ups: " + names.text())
	}
}
