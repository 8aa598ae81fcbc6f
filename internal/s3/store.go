package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
)

const (
	storeTries = 3 // whoever pushes an image waits meanwhile, and may try again
	storeQuiet = 30 * time.Second
	storePage  = 500     // objects in an answer to a list, which fit into maxAnswer
	mostEmpty  = 100     // answers to a list, one after another, without a new object
	mostListed = 500_000 // objects in a list: whoever asks keeps them in memory
	longestKey = 1024    // bytes; S3 allows no more
)

// Place is a part of a bucket, as s3://BUCKET/PREFIX?endpoint=URL&region=NAME&ca=FILE&credentials=FILE names it. It has no secrets.
type Place struct {
	Bucket, Prefix       string
	Endpoint, Region, CA string
	Credentials          string // file with them, or "": they are in the environment
}

// ParsePlace reads the URL of a part of a bucket.
func ParsePlace(text string) (place Place, err error) {
	at, parameters, _ := strings.Cut(text, "?")
	at = strings.TrimSuffix(at, "/")
	if strings.Count(at, "/") > 2 {
		place.Bucket, place.Prefix, err = Parse(at)
	} else {
		place.Bucket, _, err = Parse(at + "/x")
	}
	values, wrong := url.ParseQuery(parameters)
	hint := "write s3://BUCKET/PREFIX?endpoint=https://HOST, such as s3://skerry/images"
	if err != nil || wrong != nil {
		return Place{}, skerry.Errorf(skerry.CodeInvalid, "%.200q is not the URL of a part of a bucket", at).WithHint("%s", hint)
	}
	fields := map[string]*string{"endpoint": &place.Endpoint, "region": &place.Region, "ca": &place.CA, "credentials": &place.Credentials}
	for name, list := range values {
		field := fields[name]
		if field == nil || len(list) != 1 || list[0] == "" {
			// Not with what was given: it may be a secret.
			return Place{}, skerry.Errorf(skerry.CodeInvalid, "%s takes no parameter %.40q, or it is empty or there twice", at, name).
				WithHint("the parameters are endpoint, region, ca and credentials, a file with accessKey and secretKey")
		}
		*field = list[0]
	}
	if strings.Trim(place.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return Place{}, skerry.Errorf(skerry.CodeInvalid, "%.60q is not the name of a region", place.Region).
			WithHint("write it as eu-central-1, or leave it out")
	}
	if u, err := url.Parse(place.Endpoint); place.Endpoint != "" && (err != nil || u.User != nil) {
		return Place{}, skerry.Errorf(skerry.CodeInvalid, "the endpoint of %s is not the URL of a server", at).WithHint("%s", hint)
	}
	return place, nil
}

// Store keeps objects below a prefix of a bucket, without checksums beside them: their names, or what is in them, say what they must be.
type Store struct {
	c    *Client
	most int // objects in a list
}

// OpenStore gives a store. It asks nobody yet.
func OpenStore(p Place, conf Config) (*Store, error) {
	key := p.Prefix
	if key != "" {
		key += "/"
	}
	conf.Endpoint, conf.Region, conf.CA = p.Endpoint, p.Region, p.CA
	c, err := New(Scheme+p.Bucket+"/"+key+"x", conf)
	if err != nil {
		return nil, err
	}
	c.key = strings.TrimSuffix(c.key, "x")
	c.tries, c.quiet = storeTries, storeQuiet
	usual := c.http.Transport.(transports).usual
	usual.ResponseHeaderTimeout, usual.MaxIdleConnsPerHost = storeQuiet, 16
	return &Store{c, mostListed}, nil
}

// answering is an answer that comes in. It breaks off when the server says nothing for too long; how fast it is read does not matter.
type answering struct {
	from   io.ReadCloser
	cancel context.CancelFunc
	quiet  time.Duration
	late   atomic.Bool
}

var errQuiet = errors.New("it began to answer, and then sent nothing for too long")

func (a *answering) Read(data []byte) (int, error) {
	if a.quiet > 0 {
		defer time.AfterFunc(a.quiet, func() {
			a.late.Store(true)
			a.cancel()
		}).Stop()
	}
	n, err := a.from.Read(data)
	if err != nil && err != io.EOF && a.late.Load() {
		err = errQuiet
	}
	return n, err
}

func (a *answering) Close() error {
	defer a.cancel()
	return a.from.Close()
}

// Close lets go of connections.
func (s *Store) Close() { s.c.http.CloseIdleConnections() }

// String names the store.
func (s *Store) String() string { return strings.TrimSuffix(Scheme+s.c.bucket+"/"+s.c.key, "/") }

// object gives the client of an object.
func (s *Store) object(name string) *Client {
	o, at := *s.c, *s.c.url
	o.key += name
	at.Path = strings.TrimSuffix(at.Path, "x") + name
	at.RawPath = escape(at.Path, true)
	o.url = &at
	return &o
}

// Put writes an object of so many bytes. It is there, whole, once there is no error.
func (s *Store) Put(ctx context.Context, name string, from io.Reader, size int64) error {
	o := s.object(name)
	part := make([]byte, min(o.partSize(size), size+1))
	n, last, err := fill(from, part)
	switch {
	case err != nil:
	case last:
		_, _, err = o.do(ctx, http.MethodPut, "", "", part[:n])
	default:
		n, err = o.uploadParts(ctx, from, part, io.Discard)
	}
	if err == nil && n != size {
		err = fmt.Errorf("%s: %d bytes were written, and it has %d", o, n, size)
	}
	return err
}

// Get reads an object from an offset on; one that does not exist is fs.ErrNotExist. Who reads goes on by itself where it breaks off.
func (s *Store) Get(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	at, headers := s.object(name), http.Header{}
	if offset > 0 {
		headers.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	for try := 0; ; try++ {
		res, err := at.once(ctx, http.MethodGet, "", "", nil, headers)
		if err == nil && offset > 0 && (res.StatusCode != http.StatusPartialContent ||
			!strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset))) {
			res.Body.Close()
			return nil, skerry.Errorf(skerry.CodeUnsupported, "%s cannot send a part of an object", at.url.Host)
		}
		if err == nil {
			return res.Body, nil
		}
		if e, ok := errors.AsType[*Problem](err); ok && (e.Reason == "NoSuchKey" || e.Reason == "" && e.Status == http.StatusNotFound) {
			return nil, fmt.Errorf("%s: %w", at, fs.ErrNotExist)
		}
		if !temporary(err) || try+1 >= at.tries || at.wait(ctx, try) != nil {
			return nil, at.explain(ctx, err)
		}
	}
}

// Delete deletes an object. That there is none is no error.
func (s *Store) Delete(ctx context.Context, name string) error {
	_, _, err := s.object(name).do(ctx, http.MethodDelete, "", "", nil)
	if e, ok := errors.AsType[*Problem](err); ok && e.Reason == "NoSuchKey" {
		return nil
	}
	return err
}

// TooManyObjects refuses a list of objects that has no end, or is too long to be kept in memory.
type TooManyObjects struct {
	Store string
	Most  int
}

func (e *TooManyObjects) Error() string {
	return fmt.Sprintf("%s lists more than %d objects: is the bucket, or the prefix, used for anything else?", e.Store, e.Most)
}

// listing is an answer to a list of objects.
type listing struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	More     bool     `xml:"IsTruncated"`
	Next     string   `xml:"NextContinuationToken"`
	Contents []struct {
		Key          string
		Size         int64
		LastModified time.Time
	}
}

// parseListing reads a list of objects below a prefix, which it takes off their names.
func parseListing(text []byte, prefix string) (page listing, err error) {
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(&page); err != nil {
		return listing{}, fmt.Errorf("not a list of objects: %w", err)
	}
	for i := range page.Contents {
		o := &page.Contents[i]
		name, ok := strings.CutPrefix(o.Key, prefix)
		if !ok || o.Size < 0 || len(o.Key) > longestKey {
			return listing{}, fmt.Errorf("not a list of objects: %.200q of %d bytes is not below %q", o.Key, o.Size, prefix)
		}
		o.Key = name
	}
	if page.More && page.Next == "" {
		return listing{}, errors.New("not a list of objects: it says that there are more, and not where")
	}
	return page, nil
}

// List gives the objects whose names begin with a text, in the order of their names.
func (s *Store) List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error {
	bucket, at := *s.c, *s.c.url
	at.Path = strings.TrimSuffix(at.Path, s.c.key+"x")
	at.RawPath = escape(at.Path, true)
	bucket.url = &at
	last, empty, count := "", 0, 0
	for next := ""; ; {
		pairs := []string{"list-type", "2", "max-keys", strconv.Itoa(storePage), "prefix", s.c.key + prefix}
		if next != "" {
			pairs = append(pairs, "continuation-token", next)
		}
		got, _, err := bucket.do(ctx, http.MethodGet, "", query(pairs...), nil)
		if err != nil {
			return err
		}
		page, err := parseListing(got.body, s.c.key)
		if err != nil {
			return skerry.Errorf(skerry.CodeUnavailable, "%s answers with what is %w", at.Host, err).
				WithHint("is it the endpoint of an S3 server?")
		}
		empty++
		if count += len(page.Contents); count > s.most {
			return &TooManyObjects{s.String(), s.most}
		}
		for _, o := range page.Contents {
			if o.Key > last {
				last, empty = o.Key, 0
			}
			if err := each(o.Key, o.Size, o.LastModified); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		if page.Next == next || empty >= mostEmpty {
			return skerry.Errorf(skerry.CodeUnavailable, "%s answers again and again with the same list of objects", at.Host).
				WithHint("is it the endpoint of an S3 server?")
		}
		next = page.Next
	}
}
