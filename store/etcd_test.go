//go:build linux

package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/storetest"
)

// startEtcd starts a server of one member on loopback and gives its URL without a prefix.
func startEtcd(t testing.TB, more ...string) string {
	t.Helper()
	bin, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatalf("etcd is missing; install etcd-server: %v", err)
	}
	var ports [2]string
	var held [2]net.Listener // both at once, so that they differ
	for i := range ports {
		if held[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		ports[i] = held[i].Addr().String()
	}
	for _, l := range held {
		l.Close()
	}
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	client, peer := "http://"+ports[0], "http://"+ports[1]
	cmd := exec.Command(bin, append([]string{"--name=t", "--data-dir=" + filepath.Join(dir, "data"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=t=" + peer,
		"--max-txn-ops=4096", "--max-request-bytes=10485760"}, more...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH) // it refuses arm without
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("etcd's log:\n%s", b[max(0, len(b)-4000):])
		}
	})
	url := "etcd://" + ports[0]
	s, err := store.Open(context.Background(), url, store.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	return url
}

func TestEtcd(t *testing.T) {
	url := startEtcd(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) store.Store {
		return mustOpen(t, fmt.Sprintf("%s/skerry/%d", url, n.Add(1)))
	})
	t.Run("Durable", func(t *testing.T) {
		storetest.RunDurable(t, func(t *testing.T) store.Store { return mustOpen(t, url+"/durable") })
	})
	t.Run("Prefix", func(t *testing.T) {
		ctx := context.Background()
		a, b := mustOpen(t, url+"/p/a"), mustOpen(t, url+"/p/ab")
		defer a.Close()
		defer b.Close()
		if _, err := b.Commit(ctx, []store.Op{{Key: "k", Value: []byte("v")}}); err != nil {
			t.Fatal(err)
		}
		if rs, _, err := a.List(ctx, ""); err != nil || len(rs) != 0 {
			t.Errorf("a prefix sees its neighbour's %v (%v)", rs, err)
		}
	})
	t.Run("Pages", func(t *testing.T) {
		ctx := context.Background()
		s := mustOpen(t, url+"/pages")
		defer s.Close()
		var ops []store.Op
		for i := range 2500 {
			ops = append(ops, store.Op{Key: fmt.Sprintf("k%05d", i)})
		}
		if _, err := s.Commit(ctx, ops); err != nil {
			t.Fatal(err)
		}
		if rs, _, err := s.List(ctx, "k"); err != nil || len(rs) != 2500 || rs[2499].Key != "k02499" {
			t.Errorf("%d records (%v)", len(rs), err)
		}
	})
	t.Run("DumpLoad", func(t *testing.T) {
		a, b := mustOpen(t, url+"/dump/a"), mustOpen(t, url+"/dump/b")
		defer a.Close()
		defer b.Close()
		dumpLoad(t, a, b)
	})
}

func TestEtcdFull(t *testing.T) {
	ctx := context.Background()
	s := mustOpen(t, startEtcd(t, "--quota-backend-bytes=2000000")+"/x")
	defer s.Close()
	for i := range 100 {
		_, err := s.Commit(ctx, []store.Op{{Key: fmt.Sprint(i), Value: bytes.Repeat([]byte("x"), 200_000)}})
		if err != nil {
			if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "quota") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("etcd took more than its quota")
}

func TestEtcdAbsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, err = store.Open(context.Background(), "etcd://user:secretpw@"+l.Addr().String(), store.Options{Timeout: 200 * time.Millisecond})
	if err == nil || strings.Contains(err.Error(), "secretpw") {
		t.Errorf("an absent etcd gives %v", err)
	}
}
