//go:build linux

package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// openAt gives a store at a server that a test plays.
func openAt(t *testing.T, h http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o, err := OpenStore(Place{Bucket: "images", Endpoint: server.URL, Region: "r"}, Config{AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	o.c.pause = time.Millisecond
	return o
}

// TestStoreIsQuiet: a server begins to answer, and says no more. Nobody waits for it for ever, and whoever reads slowly is not cut off.
func TestStoreIsQuiet(t *testing.T) {
	const quiet = 100 * time.Millisecond
	o := openAt(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult>")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	o.c.quiet = quiet
	within := func(what string, try func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- try() }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: no error", what)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it still waits", what)
		}
	}
	within("list", func() error {
		_, err := listed(t.Context(), o, "")
		refused(t, "list", err, skerry.CodeUnavailable, "sent nothing", "")
		return err
	})
	within("get", func() error {
		from, err := o.Get(t.Context(), "a", 0)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.ReadAll(from)
		return err
	})

	data := content(3 << 20)
	slow := openAt(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) })
	slow.c.quiet = quiet
	from, err := slow.Get(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	time.Sleep(3 * quiet)
	if got, err := io.ReadAll(from); err != nil || !bytes.Equal(got, data) {
		t.Errorf("a slow reader gets %d bytes, %v, want %d", len(got), err, len(data))
	}
}

// TestStoreListsWithoutEnd: a server that always has more is not believed.
func TestStoreListsWithoutEnd(t *testing.T) {
	for what, step := range map[string]int{"the same names again": 0, "no names": -1} {
		asked := 0
		o := openAt(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			if asked > 3*mostEmpty {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", asked)
			if step == 0 {
				_, _ = io.WriteString(w, "<Contents><Key>a</Key><Size>1</Size><LastModified>2026-01-02T03:04:05Z</LastModified></Contents>")
			}
			_, _ = io.WriteString(w, "</ListBucketResult>")
		})
		_, err := listed(t.Context(), o, "")
		refused(t, what+" "+strconv.Itoa(asked), err, skerry.CodeUnavailable, "again and again", "")
	}
}

// TestStoreListsTooMuch: nor is one that has a new name each time.
func TestStoreListsTooMuch(t *testing.T) {
	asked, key := 0, "0"
	o := openAt(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked > 10 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", asked)
		for n := range 30 {
			fmt.Fprintf(w, "<Contents><Key>%s%02d%02d</Key><Size>1</Size>", key, asked, n)
			_, _ = io.WriteString(w, "<LastModified>2026-01-02T03:04:05Z</LastModified></Contents>")
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	})
	o.most = 100
	got, err := listed(t.Context(), o, "")
	var tooMany *TooManyObjects
	if !errors.As(err, &tooMany) || len(got) > o.most {
		t.Errorf("a list without an end: got %d objects and %v, want %d at most and a refusal", len(got), err, o.most)
	}
	asked, key = 0, strings.Repeat("k", longestKey)
	_, err = listed(t.Context(), o, "")
	refused(t, "a long name", err, skerry.CodeUnavailable, "not a list of objects", "")
}

// A server that takes a connection and reads nothing does not hold up who sends for ever.
func TestServerReadsNothing(t *testing.T) {
	over := make(chan struct{})
	o := openAt(t, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) })
	o.c.stall.limit, o.c.tries = 100*time.Millisecond, 1
	data := content(7 << 20) // more than sockets keep, in one part
	if err := o.Put(t.Context(), "a", bytes.NewReader(data), int64(len(data))); err == nil || !strings.Contains(err.Error(), "write") {
		t.Errorf("put to a server that reads nothing: got %v, want that nothing could be written", err)
	}
}

// TestNoServer: what answers each request with a page, as a proxy does that wants a login first, has kept nothing and deleted nothing.
func TestNoServer(t *testing.T) {
	o := openAt(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "<html>log in")
	})
	refused(t, "put", o.Put(t.Context(), "a", strings.NewReader("x"), 1), skerry.CodeUnavailable, "no S3 server", "proxy")
	refused(t, "delete", o.Delete(t.Context(), "a"), skerry.CodeUnavailable, "no S3 server", "proxy")
	half := openAt(t, func(w http.ResponseWriter, r *http.Request) { // it comes between
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
			_, _ = io.WriteString(w, "<UploadId>u</UploadId>")
		case r.Method == http.MethodPut:
			w.Header().Set("Etag", `"x"`)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, "<html>log in")
		}
	})
	half.c.parts = 10
	refused(t, "the end of an upload", half.Put(t.Context(), "a", strings.NewReader(strings.Repeat("x", 25)), 25), skerry.CodeUnavailable,
		"the end of an upload", "again")
}
