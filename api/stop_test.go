package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
)

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
	cancel()
	must(t, <-done)
	if strings.Contains(log.String(), "cut off") {
		t.Error("the server waited for its silent connections:", log.String())
	}
}
