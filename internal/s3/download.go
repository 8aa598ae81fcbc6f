package s3

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"

	"skerry.dev/skerry"
)

// Open gives what the object has, and its length; -1: the server does not say it. Reading goes on where a connection breaks off, and ends
// with an error in place of the last bytes, or of io.EOF if the length is not known, unless all of it has the SHA-256 that Upload wrote.
// The caller closes it.
func (c *Client) Open(ctx context.Context) (from io.ReadCloser, length int64, err error) {
	a, _, err := c.do(ctx, http.MethodGet, sumSuffix, "", nil)
	if e, ok := errors.AsType[*Problem](err); ok && e.Reason == "NoSuchKey" {
		return nil, 0, skerry.Errorf(skerry.CodeNotFound, "there is no %s%s, with the checksum of the object", c, sumSuffix).
			WithHint("copy it along with the object; what another program wrote, download with that, and import the file")
	}
	if err != nil {
		return nil, 0, err
	}
	sum, _, _ := strings.Cut(string(a.body), " ")
	if b, err := hex.DecodeString(strings.TrimSpace(sum)); err != nil || len(b) != sha256.Size {
		return nil, 0, skerry.Errorf(skerry.CodeInvalid, "%s%s is no checksum", c, sumSuffix).
			WithHint("it has to begin with a SHA-256 in hexadecimal digits, as sha256sum writes it")
	}
	r := &reader{c: c, ctx: ctx, sum: strings.ToLower(strings.TrimSpace(sum)), hash: sha256.New()}
	for try := 0; ; try++ {
		if err = r.connect(); err == nil {
			return r, r.length, nil
		}
		if !temporary(err) || try+1 >= mostTries || c.wait(ctx, try) != nil {
			return nil, 0, c.explain(ctx, err)
		}
	}
}

// reader reads an object.
type reader struct {
	c      *Client
	ctx    context.Context
	sum    string
	hash   hash.Hash
	body   io.ReadCloser // nil: it broke off
	began  bool
	tag    string
	at     int64
	length int64
	tries  int // since the last byte
}

// connect asks for what was not read yet.
func (r *reader) connect() error {
	h, rest := http.Header{}, fmt.Sprintf("bytes %d-", r.at)
	if r.began {
		h.Set("Range", fmt.Sprintf("bytes=%d-", r.at))
	}
	if r.began && r.tag != "" {
		h.Set("If-Match", r.tag)
	}
	res, err := r.c.once(r.ctx, http.MethodGet, "", "", nil, h)
	if err != nil {
		return err
	}
	if !r.began {
		r.began, r.tag, r.length = true, res.Header.Get("Etag"), res.ContentLength
	} else if res.StatusCode != http.StatusPartialContent || !strings.HasPrefix(res.Header.Get("Content-Range"), rest) {
		res.Body.Close()
		return skerry.Errorf(skerry.CodeUnsupported, "the download of %s broke off, and %s cannot go on with it", r.c, r.c.url.Host).
			WithHint("try again, or download it with another program")
	}
	r.body = res.Body
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(data []byte) (int, error) {
	for {
		var err error
		if r.body == nil {
			err = r.connect()
		}
		if err == nil {
			var n int
			n, err = r.body.Read(data)
			r.hash.Write(data[:n])
			r.at += int64(n)
			if n > 0 && r.length >= 0 && r.at >= r.length {
				// Whoever was told the length may never ask for the end.
				if err := r.verify(); err != io.EOF {
					return 0, err
				}
			}
			if n > 0 {
				r.tries = 0
				return n, nil
			}
			if err == io.EOF && (r.at == r.length || r.length < 0) {
				return 0, r.verify()
			}
			if err == nil {
				continue
			}
			r.body.Close()
			r.body = nil
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
		}
		if r.tries++; !temporary(err) || r.tries >= mostTries || r.c.wait(r.ctx, r.tries-1) != nil {
			return 0, r.c.explain(r.ctx, err)
		}
	}
}

func (r *reader) verify() error {
	if got := hex.EncodeToString(r.hash.Sum(nil)); got != r.sum {
		return skerry.Errorf(skerry.CodeConflict, "%s is damaged: its sha256 is %s, and %s%s says %s", r.c, got, r.c, sumSuffix, r.sum).
			WithHint("nothing was changed; use another object, or export again if the last export was interrupted")
	}
	return io.EOF
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.body != nil {
		return r.body.Close()
	}
	return nil
}
