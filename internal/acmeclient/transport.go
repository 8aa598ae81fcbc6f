package acmeclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxBody bounds what the authority sends in one answer; a chain of certificates has some thousand bytes.
	maxBody = 256 << 10
	// maxWait bounds what it has the site wait, in one answer.
	maxWait = 7 * 24 * time.Hour
	// badNonces is how often a request is signed anew because the authority does not take its nonce, and busy how often it is repeated
	// because the authority is unable to answer.
	badNonces, busy = 10, 2
)

// bounded keeps what the authority sends within bounds.
type bounded struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("the authority is to be asked at %.100q, which is not https", r.URL.String())
	}
	resp, err := b.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limited{resp.Body, maxBody}
	// The library would ask again at once, for ever, where this lies in the past.
	wait := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	resp.Header.Del("Retry-After")
	if wait > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client find that of the base.
func (b *bounded) CloseIdleConnections() {
	if c, ok := b.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

var errTooLarge = errors.New("the authority's answer is too large")

// limited is a body that fails where it is longer than allowed.
type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLarge
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// retryAfter reads how long the authority asks to wait, in whole seconds or until a date; 0: it does not, or not understandably.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxWait)
	}
	at, err := http.ParseTime(text)
	if err != nil || !at.After(now) {
		return 0
	}
	if at.After(now.Add(maxWait)) { // far dates overflow a difference
		return maxWait
	}
	return at.Sub(now)
}

// backoff says when a request is repeated that failed, the nth time; 0: not at all, and the failure is told.
func backoff(n int, _ *http.Request, resp *http.Response) time.Duration {
	switch {
	case resp == nil || resp.StatusCode == http.StatusTooManyRequests:
		return 0
	case resp.StatusCode >= 400 && resp.StatusCode < 500 && n <= badNonces: // only a bad nonce leads here
		return time.Millisecond
	case resp.StatusCode >= 500 && n <= busy:
		return time.Second
	}
	return 0
}
