package api_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// counted counts what is read.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// zippedWatch begins a watch with its own word about compression, and gives its bytes as they come.
func zippedWatch(t *testing.T, s *site, bearer, encoding, accept string) (*http.Response, *counted) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/watch", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", encoding) // has Go's client leave the answer as it is
	res, err := s.http().Do(r)
	must(t, err)
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("a watch: got status %d, want 200", res.StatusCode)
	}
	return res, &counted{Reader: res.Body}
}

// untilMessage reads lines up to a message that is right.
func untilMessage(t *testing.T, sc *bufio.Scanner, ok func(api.WatchMessage) bool) {
	t.Helper()
	for sc.Scan() {
		var m api.WatchMessage
		if json.Unmarshal([]byte(strings.TrimPrefix(sc.Text(), "data: ")), &m) == nil && ok(m) {
			return
		}
	}
	t.Fatalf("the watch ended: %v", sc.Err())
}

func isOf(name string) func(api.WatchMessage) bool {
	return func(m api.WatchMessage) bool { return m.App != nil && m.App.Key.Name == name }
}

// TestWatchIsCompressed counts the bytes of a snapshot with and without compression, and sees each change without waiting for more.
func TestWatchIsCompressed(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	made, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	for n := range 50 {
		_, err := admin.Apply(t.Context(), []byte(strings.Replace(shop, "shop", fmt.Sprintf("shop-%d", n), 1)), api.ApplyOptions{})
		must(t, err)
	}
	size := map[string]int{}
	for _, c := range []struct{ name, encoding, accept string }{
		{"plain", "identity", "application/x-ndjson"},
		{"zipped", "gzip", "application/x-ndjson"},
		{"events", "br, gzip;q=0.5", "text/event-stream"},
		{"refused", "gzip;q=0", "application/x-ndjson"},
	} {
		res, bytes := zippedWatch(t, s, made.Text, c.encoding, c.accept)
		from := io.Reader(bytes)
		if compressed := c.name == "zipped" || c.name == "events"; (res.Header.Get("Content-Encoding") == "gzip") != compressed {
			t.Fatalf("a watch that accepts %q: got the encoding %q", c.encoding, res.Header.Get("Content-Encoding"))
		} else if compressed {
			from, err = gzip.NewReader(bytes)
			must(t, err)
		}
		lines := bufio.NewScanner(from)
		untilMessage(t, lines, isType(api.WatchSynced))
		size[c.name] = bytes.n
		_, err := admin.Apply(t.Context(), []byte(strings.Replace(shop, "shop", "late-"+c.name, 1)), api.ApplyOptions{})
		must(t, err)
		untilMessage(t, lines, isOf("late-"+c.name))
	}
	t.Logf("bytes of a snapshot of 50 applications: %v", size)
	if size["plain"] < 4*size["zipped"] || size["plain"] < 4*size["events"] {
		t.Errorf("bytes of a snapshot: got %v, want a quarter at most when it is compressed", size)
	}
}

// TestSlowReaderOfCompression has one reader never read, and another see all that happens beside it.
func TestSlowReaderOfCompression(t *testing.T) {
	s := newRoot(t)
	admin := s.admin()
	made, err := admin.CreateAccessToken(t.Context(), api.AccessTokenRequest{Name: "raw"})
	must(t, err)
	zippedWatch(t, s, made.Text, "gzip", "application/x-ndjson")
	ch := follow(t, s.admin(), api.WatchFilter{})
	until(t, ch, "synced", isType(api.WatchSynced))
	for n := range 20 {
		name := fmt.Sprintf("shop-%d", n)
		res, err := admin.Apply(t.Context(), []byte(strings.Replace(shop, "shop", name, 1)), api.ApplyOptions{})
		must(t, err)
		until(t, ch, name, isOf(name))
		_, err = admin.Scale(t.Context(), skerry.ServiceKey{App: res.Key, Service: "web"}, 0)
		must(t, err)
	}
}
