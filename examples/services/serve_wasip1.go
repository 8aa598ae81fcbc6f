package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// serve answers requests itself, of the listener that a module is given: there are no other processes.
func (s service) serve(string) error {
	_, fd, _ := strings.Cut(os.Getenv("SKERRY_LISTEN"), "=")
	n, err := strconv.Atoi(fd)
	if err != nil {
		return errors.New("SKERRY_LISTEN names no socket, and a module makes none")
	}
	dir, err := s.directory()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return s.work(os.NewFile(uintptr(n), "listener"), dir)
}

// answerAll answers a request on each connection, one after the other: who waits for a connection or for what comes on it stops a whole module.
func answerAll(ln net.Listener, h http.Handler) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		_ = answerConn(conn, h) // the client sees that it has none
		conn.Close()
	}
}

func answerConn(conn net.Conn, h http.Handler) error {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return err
	}
	w := &kept{header: http.Header{}, code: http.StatusOK}
	h.ServeHTTP(w, req)
	return (&http.Response{StatusCode: w.code, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Close: true}).Write(conn)
}

// kept is an answer that is not sent yet.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(code int)        { k.code = code }
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }
