//go:build linux

package tunnel

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestKeep lets an agent go whose sockets the datapath keeps: what comes meanwhile is there for the next one.
func TestKeep(t *testing.T) {
	s := newStation(t, 1)
	s.start()
	if got, err := s.client.Kept(t.Context()); err != nil || len(got) != 0 {
		t.Fatalf("a new datapath keeps %v, %v", got, err)
	}
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	must(t, s.client.Keep(t.Context(), pc, ln))
	must(t, s.client.Keep(t.Context(), pc, ln)) // in the place of those before
	pc.Close()
	ln.Close()
	s.client.Close()

	u, err := net.Dial("udp", pc.LocalAddr().String())
	must(t, err)
	defer u.Close()
	_, err = u.Write([]byte("who is web?"))
	must(t, err)
	c, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer c.Close()

	s.start()
	files, err := s.client.Kept(t.Context())
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("kept %v", files)
	}
	pc2, err := net.FilePacketConn(files[0])
	must(t, err)
	defer pc2.Close()
	ln2, err := net.FileListener(files[1])
	must(t, err)
	defer ln2.Close()
	for _, f := range files {
		f.Close()
	}
	b := make([]byte, 64)
	n, from, err := pc2.ReadFrom(b)
	if err != nil || string(b[:n]) != "who is web?" || from.String() != u.LocalAddr().String() {
		t.Errorf("%q from %v, %v", b[:n], from, err)
	}
	c2, err := ln2.Accept()
	must(t, err)
	c2.Close()
	if _, err := s.client.Kept(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, s.client.Keep(t.Context())) // nothing any more
	if got, err := s.client.Kept(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("kept %v, %v", got, err)
	}
}

// TestKeepEnds has no agent come back: the address of what was kept is free again.
func TestKeepEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "k")
	must(t, err)
	ln, err := listenIn(dir, "unixpacket", keepFile)
	must(t, err)
	k := &keeper{rest: 300 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.serve(ctx, ln.(*net.UnixListener)) })
	defer wg.Wait()
	defer cancel()

	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	at := pc.LocalAddr().(*net.UDPAddr)
	first := &Client{dir: dir, patience: 5 * time.Second}
	must(t, first.Keep(t.Context(), pc))
	pc.Close()
	first.release()
	// One that comes in time holds them on.
	second := &Client{dir: dir, patience: 5 * time.Second}
	files, err := second.Kept(t.Context())
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	files[0].Close()
	time.Sleep(2 * k.rest)
	if c, err := net.ListenUDP("udp", at); err == nil {
		c.Close()
		t.Fatal("what is kept for an agent that lives was closed")
	}
	second.release()
	if _, err := second.Kept(t.Context()); err == nil {
		t.Error("a client that is closed asked")
	}
	eventually(t, "a free address", func() bool {
		c, err := net.ListenUDP("udp", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	// What no datapath understands is answered, and more descriptors than there is room for end the connection.
	odd, err := net.Dial("unixpacket", filepath.Join(dir, keepFile))
	must(t, err)
	defer odd.Close()
	_, err = odd.Write([]byte("?"))
	must(t, err)
	if what, _, _, err := receiveFiles(odd.(*net.UnixConn)); err != nil || what != keepError {
		t.Errorf("%q, %v", what, err)
	}
	many := make([]int, keepMax+1)
	must(t, sendFiles(odd.(*net.UnixConn), keepThese, "", many))
	if what, _, _, err := receiveFiles(odd.(*net.UnixConn)); err == nil {
		t.Errorf("too many descriptors: %q", what)
	}
}
