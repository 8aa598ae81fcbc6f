package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// sumSuffix is what the name of an object ends in that has the SHA-256 of another, as sha256sum writes it.
const sumSuffix = ".sha256"

// abortTime is how long an upload that failed may take to be given up.
const abortTime = 30 * time.Second

// Upload writes what from gives as the object, of which so many bytes are expected, and its SHA-256 beside it. What fails leaves no part.
func (c *Client) Upload(ctx context.Context, from io.Reader, expected int64) (n int64, err error) {
	defer c.http.CloseIdleConnections()
	hash := sha256.New()
	part := make([]byte, c.partSize(expected))
	n, last, err := fill(from, part)
	if err != nil {
		return 0, err
	}
	hash.Write(part[:n])
	if last {
		_, _, err = c.do(ctx, http.MethodPut, "", "", part[:n])
	} else {
		n, err = c.uploadParts(ctx, from, part, hash)
	}
	if err != nil {
		return 0, err
	}
	name := c.key
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[i+1:]
			break
		}
	}
	if _, _, err = c.do(ctx, http.MethodPut, sumSuffix, "", []byte(hex.EncodeToString(hash.Sum(nil))+"  "+name+"\n")); err != nil {
		return 0, fmt.Errorf("the checksum beside %s: %w", c, err)
	}
	return n, nil
}

// fill reads a part. last: nothing follows. The end is io.EOF alone: of what broke off, io.ErrUnexpectedEOF says so, which io.ReadFull
// would give for a short part as well.
func fill(from io.Reader, part []byte) (n int64, last bool, err error) {
	for n < int64(len(part)) {
		m, err := from.Read(part[n:])
		n += int64(m)
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// uploadParts uploads a full first part, and what follows it.
func (c *Client) uploadParts(ctx context.Context, from io.Reader, part []byte, hash io.Writer) (sum int64, err error) {
	a, _, err := c.do(ctx, http.MethodPost, "", query("uploads", ""), nil)
	if err != nil {
		return 0, err
	}
	id := element(a.body, "UploadId")
	if id == "" {
		return 0, skerry.Errorf(skerry.CodeUnavailable, "%s answers the beginning of an upload with none", c.url.Host).
			WithHint("is --s3-endpoint that of an S3 server?")
	}
	defer func() {
		if err != nil {
			err = c.abort(ctx, id, err)
		}
	}()
	var tags []string
	n, last := int64(len(part)), false
	for {
		if n > 0 {
			a, _, err := c.do(ctx, http.MethodPut, "", query("partNumber", strconv.Itoa(len(tags)+1), "uploadId", id), part[:n])
			if err != nil {
				return sum, err
			}
			tags = append(tags, a.header.Get("Etag"))
			sum += n
		}
		if last {
			break
		}
		if len(tags) == mostParts {
			return sum, skerry.Errorf(skerry.CodeTooLarge, "%s is longer than was said: %d parts are not enough", c, mostParts).
				WithHint("export a snapshot instead of standard input")
		}
		part = make([]byte, len(part)) // a server that answers early may still be sent the one before
		if n, last, err = fill(from, part); err != nil {
			return sum, err
		}
		if _, err := hash.Write(part[:n]); err != nil {
			return sum, err
		}
	}
	done, again, err := c.do(ctx, http.MethodPost, "", query("uploadId", id), completion(tags))
	if err == nil && !bytes.Contains(done.body, []byte("CompleteMultipartUploadResult")) {
		err = skerry.Errorf(skerry.CodeUnavailable, "%s answers the end of an upload as no S3 server does, and nobody knows what became of %s",
			c.url.Host, c).WithHint("export again")
	}
	if e, ok := errors.AsType[*Problem](err); ok && again && e.Reason == "NoSuchUpload" {
		if c.completed(ctx, tags) {
			return sum, nil // only an answer was lost
		}
		return sum, skerry.Errorf(skerry.CodeUnavailable, "the answer to the end of the upload was lost, and %s says now that there is no such upload: "+
			"nobody knows whether %s is the new object or the one before", c.url.Host, c).WithHint("export again")
	}
	return sum, err
}

// completed reports whether the object is made of the parts with these tags: its own tag is then the MD5 of theirs, and their number.
// Servers that make tags in another way are not believed.
func (c *Client) completed(ctx context.Context, tags []string) bool {
	sum := md5.New()
	for _, tag := range tags {
		b, err := hex.DecodeString(strings.Trim(tag, `"`))
		if err != nil {
			return false
		}
		sum.Write(b)
	}
	a, _, err := c.do(ctx, http.MethodHead, "", "", nil)
	return err == nil && strings.Trim(a.header.Get("Etag"), `"`) == fmt.Sprintf("%x-%d", sum.Sum(nil), len(tags))
}

// abort gives up an upload, and returns why; parts that stay cost money, and are in no list of objects.
func (c *Client) abort(ctx context.Context, id string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	_, _, err := c.do(ctx, http.MethodDelete, "", query("uploadId", id), nil)
	if e, ok := errors.AsType[*Problem](err); ok && e.Reason == "NoSuchUpload" {
		err = nil
	}
	if err == nil {
		return why
	}
	e := *skerry.AsError(why)
	e.Message += fmt.Sprintf("; the parts of upload %.100s are left at %s: %v", id, c, err)
	e.Hint += "; have the bucket remove incomplete uploads after some days (AbortIncompleteMultipartUpload)"
	return &e
}

// Delete deletes the object, and its SHA-256 first: what is left without it is of no use to anybody. That there is none is no error.
func (c *Client) Delete(ctx context.Context) error {
	defer c.http.CloseIdleConnections()
	for _, suffix := range []string{sumSuffix, ""} {
		_, _, err := c.do(ctx, http.MethodDelete, suffix, "", nil)
		if e, ok := errors.AsType[*skerry.Error](err); ok && e.Code == skerry.CodeNotFound {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
