package interference

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/spec"
)

// asker asks a service.
type asker interface {
	// get sends the next request, whose answer is known.
	get(context.Context) (Answer, error)
	// ready waits until the service answers, or has ended.
	ready(ctx context.Context, alive func(context.Context) error) error
	close()
}

func (m *measuring) asker(addr string, x *row) asker {
	if x.Service == MQTT {
		return newSensors(addr, m.messages, m.sums[MQTT])
	}
	return newClient(addr, m.sums[x.Service], x.place == spec.RuntimeWasm)
}

// client asks by HTTP.
type client struct {
	url  string
	sums []string // of the answer to request 0, 1, ..., and so on from the beginning
	next atomic.Uint64
	http *http.Client
}

// newClient asks at an address; once says that a connection is for one request, as modules have it.
func newClient(addr string, sums []string, once bool) *client {
	c := dialing(addr, sums, nil)
	c.http.Transport.(*http.Transport).DisableKeepAlives = once
	return c
}

// dialing connects by a function; nil: as usual.
func dialing(addr string, sums []string, dial func(context.Context, string, string) (net.Conn, error)) *client {
	return &client{url: "http://" + addr + "/", sums: sums,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10000, DialContext: dial}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) get(ctx context.Context) (a Answer, err error) {
	n := int((c.next.Add(1) - 1) % uint64(len(c.sums)))
	body, err := c.fetch(ctx, fmt.Sprintf("?n=%d", n))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, err
	}
	if a.Sum != c.sums[n] {
		return a, fmt.Errorf("the answer to request %d is another: its sum is %.20q, and not %s", n, a.Sum, c.sums[n])
	}
	return a, nil
}

func (c *client) fetch(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, strings.TrimSpace(string(body)))
	}
	return body, err
}

func (c *client) ready(ctx context.Context, alive func(context.Context) error) error {
	return until(ctx, alive, func(ctx context.Context) error {
		_, err := c.fetch(ctx, "healthz")
		return err
	})
}

// until tries to ask a service until it answers, or has ended.
func until(ctx context.Context, alive, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 2*time.Second)
		err := ask(try)
		done()
		if err == nil {
			return nil
		}
		if ended := alive(ctx); ended != nil {
			return ended
		}
		if sleep(ctx, time.Now().Add(20*time.Millisecond)); ctx.Err() != nil {
			return err
		}
	}
}
