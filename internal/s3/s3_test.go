package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

func TestObjectURL(t *testing.T) {
	for _, c := range []struct{ endpoint, object, want string }{
		{"", "s3://backups/shop/db 1", "https://backups.s3.eu-west-1.amazonaws.com/shop/db%201"},
		{"", "s3://backups.example/db", "https://s3.eu-west-1.amazonaws.com/backups.example/db"},
		{"https://minio.example:9000", "s3://backups/a+b", "https://minio.example:9000/backups/a%2Bb"},
		{"http://[::1]:9000/s3/", "s3://backups/ä", "http://[::1]:9000/s3/backups/%C3%A4"},
		{"minio.example:9000", "s3://backups/db", ""},
		{"https://user:secret@minio.example", "s3://backups/db", ""},
		{"ftp://minio.example", "s3://backups/db", ""},
		{"", "s3://backups", ""},
		{"", "s3://backups/", ""},
		{"", "s3://Backups/db", ""},
		{"", "s3://ba/db", ""},
		{"", "s3://backups/a/../b", ""},
		{"", "s3://backups//b", ""},
		{"", "s3://backups/b/", ""},
	} {
		bucket, key, err := Parse(c.object)
		got := ""
		if err == nil {
			if u, e := objectURL(c.endpoint, "eu-west-1", bucket, key); e == nil {
				got = u.String()
			} else {
				err = e
			}
		}
		if e := skerry.AsError(err); got != c.want || err != nil && (e.Code != skerry.CodeInvalid || e.Hint == "") {
			t.Errorf("%q at %q: %q, %v", c.object, c.endpoint, got, err)
		}
	}
}

// TestPartSize: however large an object is that servers take, its parts are few enough; a small one takes little memory.
func TestPartSize(t *testing.T) {
	c := &Client{parts: leastPart}
	for _, n := range []int64{-1, 0, 1 << 30, 100 << 30, 5 << 40} {
		part := c.partSize(n)
		if part < leastPart || part > 1<<30 || n > 0 && (n+n/20)/part >= mostParts || part%(1<<20) != 0 || n <= 100<<30 && part != leastPart {
			t.Errorf("%d bytes have parts of %d", n, part)
		}
	}
}

// FuzzProblem: whatever a server answers, what is said of it is text of one line, and bounded.
func FuzzProblem(f *testing.F) {
	f.Add(403, "", "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
	f.Add(400, "", "<Error><Code>AuthorizationHeaderMalformed</Code><Message>&apos;a&apos;</Message><Region>eu-west-1</Region></Error>")
	f.Add(301, "eu-west-1", "")
	f.Add(500, "", "<Error><Code>\u009b2J</Code></Error>")
	f.Add(500, "", "<Code><Code>\x1b[2J</Code>&#x0;&lt;</Code><Message>\xff")
	f.Fuzz(func(t *testing.T, status int, region, body string) {
		c := &Client{bucket: "b", key: "k", region: "eu-west-1"}
		c.url, _ = objectURL("", c.region, c.bucket, c.key)
		res := &http.Response{StatusCode: status, Header: http.Header{"X-Amz-Bucket-Region": {region}}}
		err := c.explain(t.Context(), c.problem(res, []byte(body)))
		e, ok := errors.AsType[*skerry.Error](err)
		if !ok || e.Code == skerry.CodeInternal || e.Hint == "" || len(e.Message) > 5000 ||
			strings.ContainsAny(e.Message+e.Hint, "\n\r\x1b\x00\u009b") {
			t.Errorf("%d %q: %+v", status, body, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"s3://backups/shop/db", "s3://b", "s3://a.b/ä", "s3://abc/../x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bucket, key, err := Parse(text)
		if err != nil {
			return
		}
		u, err := objectURL("https://h:1/p", "r", bucket, key)
		if err != nil || u.Host != "h:1" || u.Path != "/p/"+bucket+"/"+key || Scheme+bucket+"/"+key != text {
			t.Errorf("%q: %v, %v", text, u, err)
		}
	})
}

// Some servers put the parts together before they begin to answer the end of an upload. That takes longer than any other answer may, and
// the upload is complete all the same.
func TestEndOfUploadTakesLong(t *testing.T) {
	ending, ended, ends := make(chan struct{}), make(chan struct{}), 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch q := r.URL.Query(); {
		case q.Has("uploads"):
			_, _ = io.WriteString(w, "<UploadId>u</UploadId>")
		case r.Method == http.MethodPost:
			ends++
			close(ending)
			<-ended
			_, _ = io.WriteString(w, "<CompleteMultipartUploadResult/>")
		case r.Method == http.MethodGet:
			<-r.Context().Done()
		default:
			w.Header().Set("Etag", `"x"`)
		}
	}))
	defer srv.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", srv.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	c, err := New("s3://backups/big", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.http.CloseIdleConnections()
	c.parts, c.pause = 10, time.Millisecond
	c.http.Transport.(transports).usual.ResponseHeaderTimeout = 300 * time.Millisecond
	go func() {
		<-ending
		_, err := c.once(context.Background(), http.MethodGet, "", "", nil, nil) // until the usual patience is at its end
		if err == nil {
			t.Error("there is an answer to what is not answered")
		}
		close(ended)
	}()
	if n, err := c.Upload(t.Context(), strings.NewReader(strings.Repeat("x", 25)), 25); n != 25 || err != nil || ends != 1 {
		t.Errorf("%d bytes are uploaded, %v; its end was asked for %d times", n, err, ends)
	}
}
