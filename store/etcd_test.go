//go:build linux

package store_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
	return startEtcdTLS(t, store.Options{Timeout: time.Minute}, more...)
}

func startEtcdTLS(t testing.TB, o store.Options, more ...string) string {
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
	client, peer, scheme := "http://"+ports[0], "http://"+ports[1], "etcd://"
	if o.TLS != nil {
		client, scheme = "https://"+ports[0], "etcds://"
	}
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
	url := scheme + ports[0]
	s, err := store.Open(context.Background(), url, o)
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

// TestEtcdLogin goes through a first member that is down, logs in, and is told when the password is wrong.
func TestEtcdLogin(t *testing.T) {
	ctx := context.Background()
	url := startEtcd(t)
	host := strings.TrimPrefix(url, "etcd://")
	for _, c := range []struct{ path, body string }{
		{"auth/user/add", `{"name":"root","password":"secretpw"}`},
		{"auth/role/add", `{"name":"root"}`},
		{"auth/user/grant", `{"user":"root","role":"root"}`},
		{"auth/enable", `{}`},
	} {
		res, err := http.Post("http://"+host+"/v3/"+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", c.path, res.Status)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := mustOpen(t, "etcd://root:secretpw@"+l.Addr().String()+","+host+"/x")
	defer s.Close()
	rev, err := s.Commit(ctx, []store.Op{{Key: "a", Value: []byte("v")}})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := s.Watch(ctx, "", rev-1, func([]store.Event) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
	for _, user := range []string{"", "root:wrong@"} {
		s, err := store.Open(ctx, "etcd://"+user+host+"/x", store.Options{})
		if err == nil {
			s.Close()
			t.Errorf("%q was let in", user)
		}
	}
}

func TestEtcdTLS(t *testing.T) {
	ctx := context.Background()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS() // for its certificate, which is for 127.0.0.1
	defer srv.Close()
	dir := t.TempDir()
	pair := srv.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	o := store.Options{TLS: &tls.Config{RootCAs: pool}, Timeout: time.Minute}
	url := startEtcdTLS(t, o, "--cert-file="+filepath.Join(dir, "cert"), "--key-file="+filepath.Join(dir, "key"))
	s, err := store.Open(ctx, url+"/x", o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Commit(ctx, []store.Op{{Key: "a", Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if s, err := store.Open(ctx, url+"/x", store.Options{Timeout: 200 * time.Millisecond}); err == nil {
		s.Close()
		t.Error("an unknown certificate was trusted")
	}
}

// Of several processes one leads at a time; what a deposed one writes is refused, and a standby takes over when the leader
// resigns or falls silent.
func TestEtcdLeadership(t *testing.T) {
	url := startEtcd(t) + "/lead"
	open := func() store.Store {
		s, err := store.Open(t.Context(), url, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	put := func(s store.Store, value string) error {
		_, err := s.Commit(t.Context(), []store.Op{{Key: "k", Value: []byte(value)}})
		return err
	}
	a, b, outsider := open(), open(), open()
	la, err := a.(store.Electorate).Lead(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := put(a, "a1"); err != nil {
		t.Fatal(err)
	}
	type won struct {
		l   *store.Leadership
		err error
	}
	next := make(chan won, 1)
	lead := func(s store.Store, who string) {
		l, err := s.(store.Electorate).Lead(t.Context(), who)
		next <- won{l, err}
	}
	go lead(b, "b")
	select {
	case <-next:
		t.Fatal("two lead")
	case <-time.After(5 * time.Second): // longer than a lease: the leader keeps it alive
	}
	if err := put(a, "a2"); err != nil {
		t.Fatal(err)
	}
	if err := la.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := <-next
	if w.err != nil {
		t.Fatal(w.err)
	}
	if err := put(a, "a3"); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("who resigned writes: %v", err)
	}
	if err := put(b, "b1"); err != nil {
		t.Fatal(err)
	}
	// The record goes, as with a lease that could not be renewed: the next commit says so, and Done, too.
	c := open()
	go lead(c, "c")
	if _, err := outsider.Commit(t.Context(), []store.Op{{Key: "meta/leader", Delete: true}}); err != nil {
		t.Fatal(err)
	}
	w2 := <-next
	if w2.err != nil {
		t.Fatal(w2.err)
	}
	if err := put(b, "b2"); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("who was deposed writes: %v", err)
	}
	select {
	case <-w.l.Done():
	case <-time.After(20 * time.Second):
		t.Error("who was deposed is not told")
	}
	if err := put(c, "c1"); err != nil {
		t.Error(err)
	}
	r, err := c.Get(t.Context(), "k")
	if err != nil || string(r.Value) != "c1" {
		t.Errorf("%s, %v", r.Value, err)
	}
	if err := w2.l.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}
