package acmeclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// script answers each request with the next part of what a fuzzer made up.
type script struct {
	parts [][]byte
	n     int
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 400, Request: r, Header: http.Header{"Replay-Nonce": {"n"}, "Location": {"https://ca/1"}},
		Body: http.NoBody}
	if s.n++; s.n > 60 { // enough
		return resp, nil
	}
	if s.n > len(s.parts) || len(s.parts[s.n-1]) == 0 {
		resp.StatusCode = 200
		return resp, nil
	}
	part := s.parts[s.n-1]
	resp.StatusCode = []int{200, 201, 400, 403, 429, 204, 302}[int(part[0])%7]
	resp.Body = io.NopCloser(bytes.NewReader(part[1:]))
	resp.Header.Set("Retry-After", "0")
	return resp, nil
}

// nobody answers nothing.
type nobody struct{}

func (nobody) Present(context.Context, *Challenge) error { return nil }
func (nobody) Withdraw(*Challenge)                       {}

// FuzzAuthority orders a certificate of an authority that answers with what the fuzzer made up, one line a request.
func FuzzAuthority(f *testing.F) {
	dir := "\x00" + `{"newNonce":"https://ca/n","newAccount":"https://ca/a","newOrder":"https://ca/o","meta":{"termsOfService":"t"}}`
	order := "\x01" + `{"status":"pending","authorizations":["https://ca/z"],"finalize":"https://ca/f"}`
	auth := "\x00" + `{"status":"pending","identifier":{"type":"dns","value":"a.b"},` +
		`"challenges":[{"type":"http-01","url":"https://ca/c","token":"tok"}]}`
	valid := "\x00" + `{"status":"valid","certificate":"https://ca/x","authorizations":[]}`
	begun := dir + "\n\n\x01{}\n"
	f.Add([]byte(begun + order + "\n" + auth +
		"\n\x00{}\n\x00{\"status\":\"valid\"}\n" + valid + "\n" + valid + "\n\x00-----BEGIN CERTIFICATE-----"))
	f.Add([]byte(dir + "\n\n\x01{}\n\x02{\"type\":\"urn:ietf:params:acme:error:badNonce\"}"))
	f.Add([]byte(dir + "\n\n\x01{}\n\x02{\"type\":\"urn:ietf:params:acme:error:accountDoesNotExist\"}"))
	key := accountKey(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c := New(Options{Directory: "https://ca/dir", Key: key, Transport: &script{parts: bytes.Split(data, []byte("\n"))}})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the library waits a second between questions
		defer cancel()
		if cert, _, err := c.Order(ctx, "a.b", []string{"http-01"}, nobody{}); err == nil && len(cert) == 0 {
			t.Error("an order without an error has no certificate")
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	for _, s := range []string{"", "0", "-1", "120", "4294967296", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT",
		"Thu, 01 Jan 1970 00:00:00 GMT"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d := retryAfter(s, now); d < 0 || d > maxWait {
			t.Errorf("wait for %q: got %v, want it between 0 and %v", s, d, maxWait)
		}
	})
}
