//go:build linux

package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }

// object gives a client for an object of a server, which cuts it into small parts and does not wait long.
func object(t *testing.T, name string) *Client {
	t.Helper()
	c, err := New(name, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	c.pause, c.parts = time.Millisecond, 5<<20 // the least that servers take
	return c
}

func content(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(out)
	return out
}

func upload(t *testing.T, c *Client, data []byte) {
	t.Helper()
	if n, err := c.Upload(t.Context(), bytes.NewReader(data), int64(len(data))); err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes of %d are uploaded, %v", n, len(data), err)
	}
}

func download(ctx context.Context, c *Client) ([]byte, error) {
	from, _, err := c.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return io.ReadAll(from)
}

func refused(t *testing.T, what string, err error, code skerry.Code, text, hint string) {
	t.Helper()
	e, ok := errors.AsType[*skerry.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Message, text) || !strings.Contains(e.Hint, hint) || e.Hint == "" {
		t.Errorf("%s: %+v, want %s with %q and the hint %q", what, e, code, text, hint)
	}
}

// uploads lists what is left of uploads that are not complete.
func uploads(t *testing.T, c *Client) string {
	t.Helper()
	bucket := *c
	u := *c.url
	u.Path, u.RawPath = "/"+c.bucket, ""
	bucket.url = &u
	a, _, err := bucket.do(t.Context(), http.MethodGet, "", query("uploads", ""), nil)
	if err != nil {
		t.Fatal(err)
	}
	return element(a.body, "UploadId")
}

// TestServer: what is written to a server is read from it, in one part or several, and whatever its name; what a server refuses is
// explained.
func TestServer(t *testing.T) {
	s := testenv.NewS3(t, "../..")
	s.Bucket(t, "backups")
	s.Setenv(t)
	for _, c := range []struct {
		name string
		size int
	}{
		{"s3://backups/empty", 0}, {"s3://backups/small", 1000}, {"s3://backups/one part", 5 << 20},
		{"s3://backups/shop/parts+ä$@=&;,:'()*!", 12<<20 + 1},
	} {
		o, data := object(t, c.name), content(c.size)
		upload(t, o, data)
		if got, err := download(t.Context(), o); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d are read, %v", c.name, len(got), len(data), err)
		}
		upload(t, o, data[:len(data)/2]) // in its place
		if got, err := download(t.Context(), o); err != nil || len(got) != len(data)/2 {
			t.Errorf("%s: %d bytes of %d are read, %v", c.name, len(got), len(data)/2, err)
		}
		if id := uploads(t, o); id != "" {
			t.Errorf("%s: upload %s is left", c.name, id)
		}
	}
	old := object(t, "s3://backups/old")
	upload(t, old, content(1000))
	for range 2 { // that it is gone is no error
		if err := old.Delete(t.Context()); err != nil {
			t.Errorf("it is not deleted: %v", err)
		}
	}
	_, err := download(t.Context(), old)
	refused(t, "what was deleted", err, skerry.CodeNotFound, "there is no ", "")

	big := object(t, "s3://backups/big")
	broken := errors.New("the cluster went away")
	_, err = big.Upload(t.Context(), io.MultiReader(bytes.NewReader(content(11<<20)), iotestErr{broken}), 20<<20)
	if id := uploads(t, big); !errors.Is(err, broken) || id != "" {
		t.Errorf("what cannot be read: %v, upload %q is left", err, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ending := readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF })
	_, err = big.Upload(ctx, io.MultiReader(bytes.NewReader(content(11<<20)), ending), 20<<20)
	if id := uploads(t, big); !errors.Is(err, context.Canceled) || id != "" {
		t.Errorf("given up: %v, upload %q is left", err, id)
	}
	_, err = download(t.Context(), big)
	refused(t, "what is not there", err, skerry.CodeNotFound, "s3://backups/big.sha256", "along with the object")
	upload(t, big, content(100))
	if err := os.Remove(filepath.Join(s.Dir, "backups", "big")); err != nil {
		t.Fatal(err)
	}
	_, err = download(t.Context(), big)
	refused(t, "an object without content", err, skerry.CodeNotFound, "s3://backups/big", "")

	small := object(t, "s3://backups/small")
	if err := os.WriteFile(filepath.Join(s.Dir, "backups", "small"), []byte("something else"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = download(t.Context(), small)
	refused(t, "a damaged object", err, skerry.CodeConflict, "is damaged: its sha256 is", "nothing was changed")
	upload(t, object(t, "s3://backups/small.sha256"), []byte("no sum"))
	_, err = download(t.Context(), small)
	refused(t, "a damaged checksum", err, skerry.CodeInvalid, "is no checksum", "sha256sum")

	try := func(name string) error {
		o := object(t, name)
		_, err := o.Upload(t.Context(), strings.NewReader("x"), 1)
		return err
	}
	refused(t, "no bucket", try("s3://nowhere/x"), skerry.CodeNotFound, "there is no bucket nowhere", "make it")
	t.Setenv("AWS_REGION", "us-east-1")
	refused(t, "another region", try("s3://backups/x"), skerry.CodeInvalid, "eu-test-1", "--s3-region")
	t.Setenv("AWS_REGION", s.Region)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	refused(t, "another secret", try("s3://backups/x"), skerry.CodeUnauthorized, "signature", "AWS_SECRET_ACCESS_KEY")
	t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
	refused(t, "another key", try("s3://backups/x"), skerry.CodeUnauthorized, "access key", "AWS_ACCESS_KEY_ID")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	_, err = New("s3://backups/x", Config{})
	refused(t, "no key", err, skerry.CodeUnauthorized, "no credentials", "AWS_ACCESS_KEY_ID")
	s.Setenv(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", strings.Replace(s.URL, "http:", "https:", 1))
	refused(t, "TLS where there is none", try("s3://backups/x"), skerry.CodeUnavailable, "TLS", "http://")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
	refused(t, "nobody listens", try("s3://backups/x"), skerry.CodeUnavailable, "cannot be reached", "--s3-endpoint")
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// faults break requests to a server.
type faults struct {
	http.RoundTripper
	n     int
	fault func(n int, r *http.Request) string
	cut   int64
}

// RoundTrip implements http.RoundTripper.
func (f *faults) RoundTrip(r *http.Request) (*http.Response, error) {
	f.n++
	fault := f.fault(f.n, r)
	if fault == "lost" {
		return nil, errors.New("connection reset by peer")
	}
	if strings.HasPrefix(fault, "busy") {
		_, _ = io.Copy(io.Discard, r.Body)
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Request: r,
			Body: io.NopCloser(strings.NewReader("<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"))}, nil
	}
	res, err := f.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch fault {
	case "done, and not said":
		res.Body.Close()
		return nil, io.ErrUnexpectedEOF
	case "cut":
		res.Body = &cut{res.Body, f.cut}
	}
	return res, nil
}

// cut gives so many bytes of a body.
type cut struct {
	io.ReadCloser
	left int64
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// TestBroken: requests and answers are lost, one after the other, and the server is busy: what is written and read is whole. A download
// that breaks off goes on, and one that never ends does. What fails for good leaves no part.
func TestBroken(t *testing.T) {
	s := testenv.NewS3(t, "../..")
	s.Bucket(t, "backups")
	s.Setenv(t)
	data := content(12 << 20)
	with := func(name string, f func(n int, r *http.Request) string) (*Client, *faults) {
		o := object(t, name)
		broken := &faults{RoundTripper: o.http.Transport, fault: f, cut: 5_000_000}
		o.http.Transport = broken
		return o, broken
	}
	for _, fault := range []string{"lost", "busy", "done, and not said"} {
		o, f := with("s3://backups/"+fault, func(n int, _ *http.Request) string { return []string{fault, ""}[n%2] })
		upload(t, o, data)
		if got, err := download(t.Context(), o); err != nil || !bytes.Equal(got, data) || f.n < 14 {
			t.Errorf("%s: %d bytes of %d are read with %d requests, %v", fault, len(got), len(data), f.n, err)
		}
		if id := uploads(t, o); id != "" && fault != "done, and not said" { // of an upload whose beginning was not heard nobody knows
			t.Errorf("%s: upload %s is left", fault, id)
		}
	}
	o, f := with("s3://backups/lost", func(n int, r *http.Request) string {
		if strings.HasSuffix(r.URL.Path, sumSuffix) {
			return ""
		}
		return "cut"
	})
	if got, err := download(t.Context(), o); err != nil || !bytes.Equal(got, data) || f.n != 4 {
		t.Errorf("cut off: %d bytes of %d are read with %d requests, %v", len(got), len(data), f.n, err)
	}
	f.n, f.cut = 0, 0
	if _, err := download(t.Context(), o); f.n != mostTries+1 {
		t.Errorf("cut off at once: %d requests, %v", f.n, err)
	} else {
		refused(t, "cut off at once", err, skerry.CodeUnavailable, "broke off", "try again")
	}
	f.cut = 5_000_000
	again := object(t, "s3://backups/lost")
	f.fault = func(n int, r *http.Request) string {
		if r.Header.Get("Range") != "" {
			upload(t, again, data[:100]) // meanwhile
			return ""
		}
		return "cut"
	}
	_, err := download(t.Context(), o)
	refused(t, "written again while it is read", err, skerry.CodeConflict, "was written again", "try again")

	o, f = with("s3://backups/part", func(n int, r *http.Request) string {
		if r.URL.Query().Get("partNumber") == "2" {
			return "busy"
		}
		return ""
	})
	_, err = o.Upload(t.Context(), bytes.NewReader(data), int64(len(data)))
	refused(t, "a part that never comes", err, skerry.CodeUnavailable, "SlowDown", "try again")
	if id := uploads(t, o); id != "" || f.n != 1+1+mostTries+1+1 { // begin, part 1, part 2, abort; and this question
		t.Errorf("upload %q is left after %d requests", id, f.n)
	}
	o, _ = with("s3://backups/part", func(n int, r *http.Request) string {
		if r.URL.Query().Get("partNumber") == "2" || r.Method == http.MethodDelete {
			return "busy"
		}
		return ""
	})
	_, err = o.Upload(t.Context(), bytes.NewReader(data), int64(len(data)))
	refused(t, "an upload that cannot be given up", err, skerry.CodeUnavailable, "are left", "AbortIncompleteMultipartUpload")
}

// TestTrust: a server's certificate has to be of an authority that is known, or named.
func TestTrust(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer s.Close()
	(&testenv.S3{URL: s.URL, Region: "a", Key: "k", Secret: "s"}).Setenv(t)
	try := func() error {
		_, err := object(t, "s3://backups/x").Upload(t.Context(), strings.NewReader("x"), 1)
		return err
	}
	refused(t, "an authority that nobody knows", try(), skerry.CodeUnavailable, "cannot be trusted", "AWS_CA_BUNDLE")
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", file)
	refused(t, "denied", try(), skerry.CodeForbidden, "access to s3://backups/x is denied", "s3:PutObject")
	if err := os.WriteFile(file, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := New("s3://backups/x", Config{})
	refused(t, "no authority", err, skerry.CodeInvalid, "AWS_CA_BUNDLE", "PEM")
}

// TestCutOff: what breaks off on its way to a server is no object, whatever the error is called; what comes from a server that does not say
// which object it is, or from where, is not joined to what came before; and what has another checksum is not read to its end, even by who
// counts bytes.
func TestCutOff(t *testing.T) {
	var mu sync.Mutex
	var list []string
	var answer http.HandlerFunc
	asked := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
	answers := func(h http.HandlerFunc) {
		mu.Lock()
		defer mu.Unlock()
		list, answer = nil, h
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		list = append(list, r.Method)
		n, answer := len(list), answer
		mu.Unlock()
		if sum := strings.Repeat("0", 64); r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, sumSuffix) {
			_, _ = io.WriteString(w, sum+"  x\n")
			return
		}
		if n > 20 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer(w, r)
	}))
	defer s.Close()
	(&testenv.S3{URL: s.URL, Region: "a", Key: "k", Secret: "s"}).Setenv(t)
	o := object(t, "s3://backups/x")

	for _, size := range []int{100, 11 << 20} {
		for _, broken := range []error{io.ErrUnexpectedEOF, errors.Join(io.ErrUnexpectedEOF, nil)} {
			answers(func(w http.ResponseWriter, r *http.Request) {
				switch r.Method {
				case http.MethodPost:
					_, _ = io.WriteString(w, "<UploadId>u</UploadId>")
				case http.MethodPut:
					w.Header().Set("Etag", `"x"`)
				}
			})
			_, err := o.Upload(t.Context(), io.MultiReader(bytes.NewReader(content(size)), iotestErr{broken}), 20<<20)
			if got := strings.Join(asked(), " "); !errors.Is(err, io.ErrUnexpectedEOF) || got != "" && !strings.HasSuffix(got, "DELETE") {
				t.Errorf("%d bytes of more: %s, %v", size, got, err)
			}
		}
	}

	for what, header := range map[string]http.Header{
		"an answer of the whole": {},
		"another part":           {"Content-Range": {"bytes 0-99/100"}, "Etag": {"a"}},
	} {
		answers(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			for name, values := range header {
				w.Header()[name] = values
			}
			if r.Header.Get("Range") != "" && header.Get("Content-Range") != "" {
				w.WriteHeader(http.StatusPartialContent)
			}
			_, _ = w.Write(content(50))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		_, err := download(t.Context(), o)
		refused(t, what, err, skerry.CodeUnsupported, "cannot go on with it", "try again")
		if n := len(asked()); n != 3 {
			t.Errorf("%s: %d requests", what, n)
		}
	}

	answers(func(w http.ResponseWriter, r *http.Request) {
		if coding := r.Header.Get("Accept-Encoding"); coding != "" {
			t.Errorf("%s may be compressed on its way: %s", r.URL, coding)
		}
		_, _ = w.Write(content(100))
	})
	from, length, err := o.Open(t.Context())
	if err != nil || length != 100 {
		t.Fatal(length, err)
	}
	defer from.Close()
	_, err = io.ReadFull(from, make([]byte, length))
	refused(t, "another object", err, skerry.CodeConflict, "is damaged", "nothing was changed")
}

// TestLostEnd: an upload whose end was not heard of counts only if the object is made of its parts; else it may be the one before.
func TestLostEnd(t *testing.T) {
	tag := strings.Repeat("ab", 16)
	sum := md5.Sum(bytes.Repeat([]byte{0xab}, 32))
	for _, x := range []struct {
		is   string // the tag of the object
		good bool
	}{{hex.EncodeToString(sum[:]) + "-2", true}, {strings.Repeat("00", 16) + "-2", false}, {tag, false}} {
		ends := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			switch q := r.URL.Query(); {
			case r.Method == http.MethodPost && q.Has("uploads"):
				_, _ = io.WriteString(w, "<UploadId>u</UploadId>")
			case r.Method == http.MethodPost:
				if ends++; ends == 1 {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "<Error><Code>NoSuchUpload</Code></Error>")
			case r.Method == http.MethodHead:
				w.Header().Set("Etag", `"`+x.is+`"`)
			default:
				w.Header().Set("Etag", `"`+tag+`"`)
			}
		}))
		(&testenv.S3{URL: s.URL, Region: "a", Key: "k", Secret: "s"}).Setenv(t)
		o := object(t, "s3://backups/x")
		_, err := o.Upload(t.Context(), bytes.NewReader(content(6<<20)), 6<<20)
		s.Close()
		if good := err == nil; good != x.good || ends != 2 {
			t.Errorf("the object has tag %s: %v after %d ends; expected success: %v", x.is, err, ends, x.good)
		}
	}
}
