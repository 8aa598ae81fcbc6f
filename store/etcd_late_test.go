//go:build linux

package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/store"
)

// wayTo is a server through which another one is asked: each request goes through carry, which forwards it when it likes.
func wayTo(t *testing.T, target string, carry func(body []byte, forward func() []byte)) string {
	way := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		carry(body, func() []byte {
			res, err := http.Post(target+r.URL.Path, "application/json", bytes.NewReader(body))
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return nil
			}
			defer res.Body.Close()
			answer, _ := io.ReadAll(res.Body)
			w.WriteHeader(res.StatusCode)
			w.Write(answer)
			return answer
		})
	}))
	t.Cleanup(way.Close)
	return way.URL
}

// TestEtcdSilentMember has a member take requests and say nothing: after one call that its caller gave up, another member is asked.
func TestEtcdSilentMember(t *testing.T) {
	target := "http" + strings.TrimPrefix(startEtcd(t), "etcd")
	var silent atomic.Bool
	end := make(chan struct{})
	defer close(end)
	first := wayTo(t, target, func(_ []byte, forward func() []byte) {
		if silent.Load() {
			<-end
			return
		}
		forward()
	})
	s, err := store.Open(t.Context(), "etcd"+strings.TrimPrefix(first, "http")+","+strings.TrimPrefix(target, "http://")+"/silent", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := s.Commit(ctx, []store.Op{{Key: "k", Value: []byte("v")}})
		return err
	}
	silent.Store(true)
	if err := put(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent member: %v", err)
	}
	if err := put(10 * time.Second); err != nil {
		t.Errorf("another member answers, and is not asked: %v", err)
	}
}

// TestEtcdLateCommit holds a leader's commit back on its way to etcd until the leader has given it up and read what is stored: done
// after that, it would alter what the leader believes to know.
func TestEtcdLateCommit(t *testing.T) {
	ctx := t.Context()
	target := "http" + strings.TrimPrefix(startEtcd(t), "etcd")
	giveUp, release, late := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	way := wayTo(t, target, func(body []byte, forward func() []byte) {
		if !bytes.Contains(body, []byte("aGVsZA==")) { // "held"
			forward()
			return
		}
		close(giveUp)
		<-release
		late <- string(forward())
	})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	s, err := store.Open(ctx, "etcd"+strings.TrimPrefix(way, "http")+"/late", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.(store.Electorate).Lead(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, value string) error {
		_, err := s.Commit(ctx, []store.Op{{Key: "k", Value: []byte(value)}})
		return err
	}
	if err := put(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(ctx)
	go func() { <-giveUp; cancel() }()
	if err := put(impatient, "held"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the held commit: %v", err)
	}
	read := func() string {
		list, _, err := s.List(ctx, "k")
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return string(list[0].Value)
	}
	if have := read(); have != "first" {
		t.Fatalf("%q is stored", have)
	}
	free()
	answer := <-late
	if have := read(); have != "first" {
		t.Errorf("what was given up was done after a read: %q is stored; etcd answered %s", have, answer)
	}
	if err := put(ctx, "second"); err != nil {
		t.Errorf("it leads on, and cannot write: %v", err)
	}
	if have := read(); have != "second" {
		t.Errorf("%q is stored", have)
	}
}
