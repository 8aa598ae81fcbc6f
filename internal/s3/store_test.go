//go:build linux

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

func openTestStore(t *testing.T, s *testenv.S3, text, key, secret string) *Store {
	t.Helper()
	p, err := ParsePlace(text + "?endpoint=" + s.URL + "&region=" + s.Region)
	if err != nil {
		t.Fatal(err)
	}
	o, err := OpenStore(p, Config{AccessKey: key, SecretKey: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	o.c.pause, o.c.parts = time.Millisecond, 5<<20
	return o
}

func listed(ctx context.Context, o *Store, prefix string) (out []string, err error) {
	err = o.List(ctx, prefix, func(name string, size int64, at time.Time) error {
		if at.IsZero() {
			return fmt.Errorf("%s has no time", name)
		}
		out = append(out, fmt.Sprintf("%s %d", name, size))
		return nil
	})
	return out, err
}

// TestStore: objects are written, listed over several answers, read from anywhere in them and deleted; others of the bucket are not seen.
func TestStore(t *testing.T) {
	server := testenv.NewS3(t, "../..")
	server.Bucket(t, "images")
	ctx := t.Context()
	for _, text := range []string{"s3://images", "s3://images/of/root"} {
		o := openTestStore(t, server, text, server.Key, server.Secret)
		var want []string
		for n, size := range []int{0, 1000, 5 << 20, 12<<20 + 1} {
			name, data := fmt.Sprintf("blobs/%d:ä+@", n), content(size)
			if err := o.Put(ctx, name, bytes.NewReader(data), int64(size)); err != nil {
				t.Fatalf("%s: put %s: %v", text, name, err)
			}
			want = append(want, fmt.Sprintf("%s %d", name, size))
			for _, at := range []int{0, size / 2} {
				from, err := o.Get(ctx, name, int64(at))
				if err != nil {
					t.Fatalf("%s: get %s at %d: %v", text, name, at, err)
				}
				got, err := io.ReadAll(from)
				from.Close()
				if err != nil || !bytes.Equal(got, data[at:]) {
					t.Errorf("%s: %s at %d has %d bytes, %v; want %d", text, name, at, len(got), err, size-at)
				}
			}
		}
		if got, err := listed(ctx, o, "blobs/"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: there are %v, %v; want %v", text, got, err, want)
		}
		for range 2 {
			if err := o.Delete(ctx, "blobs/0:ä+@"); err != nil {
				t.Errorf("%s: delete: %v", text, err)
			}
		}
		if _, err := o.Get(ctx, "blobs/0:ä+@", 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what was deleted: %v, want %v", text, err, fs.ErrNotExist)
		}
	}
	many := openTestStore(t, server, "s3://images/many", server.Key, server.Secret)
	for n := range storePage + 1 {
		if err := many.Put(ctx, fmt.Sprintf("%05d", n), bytes.NewReader(nil), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := listed(ctx, many, ""); err != nil || len(got) != storePage+1 || got[storePage] != fmt.Sprintf("%05d 0", storePage) {
		t.Errorf("%d objects are listed, %v; want %d", len(got), err, storePage+1)
	}
}

// TestStoreRefuses: what a server refuses is explained, whatever was asked for.
func TestStoreRefuses(t *testing.T) {
	server := testenv.NewS3(t, "../..")
	server.Bucket(t, "images")
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome") }))
	defer garbage.Close()
	for _, c := range []struct {
		what, url, key, secret, at string
		code                       skerry.Code
		text                       string
	}{
		{"no bucket", "s3://nowhere/x", server.Key, server.Secret, server.URL, skerry.CodeNotFound, "there is no bucket nowhere"},
		{"a wrong key", "s3://images/x", "somebody", server.Secret, server.URL, skerry.CodeUnauthorized, "access key"},
		{"a wrong secret", "s3://images/x", server.Key, "nonsense", server.URL, skerry.CodeUnauthorized, "signature"},
		{"a server that is away", "s3://images/x", server.Key, server.Secret, "http://" + testenv.FreeAddr(t), skerry.CodeUnavailable,
			"cannot be reached"},
	} {
		o := openTestStore(t, &testenv.S3{URL: c.at, Region: server.Region}, c.url, c.key, c.secret)
		_, err := listed(t.Context(), o, "")
		refused(t, c.what+", list", err, c.code, c.text, "")
		_, err = o.Get(t.Context(), "a", 0)
		refused(t, c.what+", get", err, c.code, c.text, "")
		refused(t, c.what+", put", o.Put(t.Context(), "a", bytes.NewReader([]byte("x")), 1), c.code, c.text, "")
	}
	o := openTestStore(t, &testenv.S3{URL: garbage.URL, Region: server.Region}, "s3://images/x", server.Key, server.Secret)
	_, err := listed(t.Context(), o, "")
	refused(t, "garbage", err, skerry.CodeUnavailable, "not a list of objects", "")
}

func FuzzParseListing(f *testing.F) {
	f.Add([]byte(`<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken><Contents><Key>a/b</Key>` +
		`<Size>3</Size><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>`))
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseListing(text, "a/")
		if err == nil && l.More && l.Next == "" {
			t.Errorf("%q has more, and no way there", text)
		}
	})
}

func FuzzParsePlace(f *testing.F) {
	for _, text := range []string{"s3://images", "s3://images/", "s3://images/of/root?endpoint=http://h:1&region=x", "s3://a?x=1",
		"http://a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlace(text)
		if err != nil {
			return
		}
		if _, err := OpenStore(p, Config{AccessKey: "a", SecretKey: "b"}); err != nil && p.Endpoint == "" && p.CA == "" && p.Region != "" {
			t.Errorf("%q is a place, and does not open: %v", text, err)
		}
	})
}
