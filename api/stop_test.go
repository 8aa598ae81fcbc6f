package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/api"
)

// A client has connected, and its request is on its way when the server stops: it is answered.
func TestRequestThatComesAtTheEnd(t *testing.T) {
	s := newRoot(t)
	h, err := api.NewHandler(api.Options{Backend: s.Root, People: s.API.People, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0", Plain: true})
	must(t, err)
	must(t, srv.Open())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	c, err := net.Dial("tcp", srv.Addr().String())
	must(t, err)
	defer c.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(srv.URL() + "/healthz") // whose connection is accepted after that one
	must(t, err)
	res.Body.Close()
	cancel()
	for err == nil { // until nobody else is let in
		var other net.Conn
		if other, err = net.Dial("tcp", srv.Addr().String()); err == nil {
			other.Close()
		}
	}
	_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: root\r\nConnection: close\r\n\r\n")
	must(t, err)
	res, err = http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s %q, %v", res.Status, text, err)
	}
	must(t, <-done)
}

// A server that stops does not wait for connections that ask nothing, such as those a browser opens ahead.
func TestStopWithSilentConnections(t *testing.T) {
	s := newRoot(t)
	var log bytes.Buffer
	h, err := api.NewHandler(api.Options{Backend: s.Root, People: s.API.People, Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0"})
	must(t, err)
	must(t, srv.Open())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	plain, err := net.Dial("tcp", srv.Addr().String())
	must(t, err)
	defer plain.Close()
	secure, err := tls.Dial("tcp", srv.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	must(t, err)
	defer secure.Close()
	// Whoever opens thousands of them leaves descriptors for others, and others get in.
	const many = 1400
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	for range many {
		c, err := net.Dial("tcp", srv.Addr().String())
		must(t, err)
		idle = append(idle, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := client.Get("https://" + srv.Addr().String() + "/healthz")
	must(t, err)
	res.Body.Close()
	gone := 0
	for _, c := range idle {
		must(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			gone++
		}
	}
	if gone < many-1024-10 {
		t.Errorf("of %d silent connections %d were closed", many, gone)
	}
	cancel()
	must(t, <-done)
	if strings.Contains(log.String(), "cut off") {
		t.Error("the server waited for its silent connections:", log.String())
	}
}
