package tier

import (
	"bytes"
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

// TestLater sends half of a body, and the other half when the answer has begun: all of it arrives. An error comes with its hint whether the
// answer has begun or not, and a panic is one.
func TestLater(t *testing.T) {
	half := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // more than a server throws away in silence
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		beat := time.Hour
		if r.URL.Path == "/late" {
			beat = time.Millisecond
		}
		laterAt(w, r, beat, func(context.Context) (any, error) {
			if r.URL.RawQuery == "refuse" {
				return nil, skerry.Errorf(skerry.CodeQuota, "too much").WithHint("less of it")
			}
			n, err := io.Copy(io.Discard, r.Body)
			switch r.URL.RawQuery {
			case "error":
				return nil, skerry.Errorf(skerry.CodeQuota, "too much").WithHint("less of it")
			case "panic":
				panic("of ours")
			}
			return map[string]int64{"bytes": n}, err
		})
	}))
	defer s.Close()
	for _, q := range []string{"", "?error", "?panic", "?refuse"} {
		for _, path := range []string{"/late", "/soon"} {
			body, feed := io.Pipe()
			req, err := http.NewRequest(http.MethodPut, s.URL+path+q, body)
			if err != nil {
				t.Fatal(err)
			}
			begun := make(chan struct{})
			if path == "/soon" || q == "?refuse" {
				close(begun)
			}
			go func() {
				_, err := feed.Write(half)
				<-begun
				if err == nil {
					_, err = feed.Write(half)
				}
				feed.CloseWithError(err)
			}()
			res, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if path == "/late" && q != "?refuse" {
				close(begun)
			}
			var out struct{ Bytes int }
			err = ReadLater(res, &out)
			e := skerry.AsError(err)
			switch {
			case q == "" && (err != nil || out.Bytes != 2*len(half)):
				t.Errorf("%s: %d of %d bytes arrived, %v", path, out.Bytes, 2*len(half), err)
			case (q == "?error" || q == "?refuse") && (err == nil || e.Code != skerry.CodeQuota || e.Message != "too much" || e.Hint != "less of it"):
				t.Errorf("%s: %v, %q", path, err, e.Hint)
			case errors.As(err, new(*AnswerLost)):
				t.Errorf("%s: %v counts as lost, want that it is an answer", path, err)
			case q == "?panic" && (err == nil || e.Code != skerry.CodeInternal):
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	for _, text := range []string{"", "\n\n", "\n{", "\n[]"} {
		res := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}
		err := ReadLater(res, &struct{ Bytes int }{})
		if lost, ok := errors.AsType[*AnswerLost](err); !ok || skerry.AsError(lost).Code != skerry.CodeUnavailable {
			t.Errorf("%q gives %v, want that the answer is lost", text, err)
		}
	}
}
