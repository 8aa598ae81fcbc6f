// Package s3 writes and reads an object in S3, or in what speaks its protocol: an upload in parts, which needs no more memory than one of
// them and leaves nothing behind when it fails, and a download that goes on where it was cut off. Beside an object lies its SHA-256, and
// what does not have it does not end well. It knows nothing of what is in an object. The commands and
// the cluster import it.
package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// Scheme is how a URL of an object begins: s3://BUCKET/KEY.
const Scheme = "s3://"

// Config says where objects are, and who asks. What is empty comes from the environment, as with the tools of AWS; secrets come only from
// there, because everybody on a machine sees arguments.
type Config struct {
	Endpoint string
	Region   string
	// A role has them in a file of its operator; its environment is then not looked at.
	AccessKey, SecretKey, SessionToken string
	CA                                 string // file with the authority of the server
}

// Client reaches one object.
type Client struct {
	url    *url.URL // of the object
	bucket string
	key    string
	region string
	who    credentials
	http   *http.Client
	pause  time.Duration // before the first repetition
	parts  int64         // the least size of parts
	tries  int           // of a request that failed
	quiet  time.Duration // that an answer may have in it; 0: as long as it likes
	stall  *stall
	now    func() time.Time
}

const (
	leastPart    = 16 << 20 // bytes; the protocol wants 5 MiB
	mostParts    = 10_000   // of the protocol
	mostTries    = 6
	firstPause   = 500 * time.Millisecond
	longestPause = 20 * time.Second
	quietFor     = time.Minute // until the answer to a request begins, and while nothing is read of it
	dialFor      = 30 * time.Second
	finishFor    = 20 * time.Minute // and that to the end of an upload
	maxAnswer    = 1 << 20
)

// Parse reads s3://BUCKET/KEY.
func Parse(text string) (bucket, key string, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	bucket, key, _ = strings.Cut(rest, "/")
	ok = ok && len(bucket) >= 3 && len(bucket) <= 63 && len(key) <= 1000 && key != "" && !strings.HasSuffix(key, "/")
	for _, c := range []byte(bucket) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.')
	}
	for _, part := range strings.Split(key, "/") {
		ok = ok && part != "" && part != "." && part != ".."
	}
	if !ok {
		return "", "", skerry.Errorf(skerry.CodeInvalid, "%.200q is not the URL of an object", text).
			WithHint("write s3://BUCKET/KEY, such as s3://backups/shop/db.snapshot")
	}
	return bucket, key, nil
}

// New gives a client for an object.
func New(object string, conf Config) (*Client, error) {
	bucket, key, err := Parse(object)
	if err != nil {
		return nil, err
	}
	env := func(names ...string) string {
		if conf.AccessKey != "" {
			return ""
		}
		for _, name := range names {
			if v := os.Getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	o := &Client{bucket: bucket, key: key, region: conf.Region, pause: firstPause, parts: leastPart, tries: mostTries, now: time.Now,
		who: credentials{conf.AccessKey, conf.SecretKey, conf.SessionToken}}
	if conf.AccessKey == "" {
		o.who = credentials{env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN")}
	}
	if o.region == "" {
		o.region = env("AWS_REGION", "AWS_DEFAULT_REGION")
	}
	endpoint := conf.Endpoint
	if endpoint == "" {
		endpoint = env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	}
	if o.region == "" {
		if endpoint == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "it is not said in which region bucket %s is", bucket).
				WithHint("add --s3-region, or set AWS_REGION")
		}
		o.region = "us-east-1" // what most servers of others are called
	}
	if o.who.key == "" || o.who.secret == "" {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "there are no credentials for %s%s", Scheme, bucket).
			WithHint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if o.url, err = objectURL(endpoint, o.region, bucket, key); err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = quietFor
	o.stall = &stall{quietFor}
	t.DialContext = o.stall.dial
	t.DisableCompression = true // lengths and ranges are of what is stored
	file, what := conf.CA, "ca"
	if file == "" {
		file, what = env("AWS_CA_BUNDLE"), "AWS_CA_BUNDLE"
	}
	if file != "" {
		pem, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = errors.New("it has no certificate")
		}
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "%s %s: %w", what, file, err).
				WithHint("name a file with certificates of authorities (PEM)")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	patient := t.Clone()
	patient.ResponseHeaderTimeout = finishFor
	// A redirection leads to another region, for which the signature is no good.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.http = &http.Client{Transport: transports{t, patient}, CheckRedirect: stay}
	return o, nil
}

// stall is how long a server may read nothing of what it is sent: the time for an answer begins only when all was sent.
type stall struct{ limit time.Duration }

func (s *stall) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialFor, KeepAlive: dialFor}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &stalling{conn, s.limit}, nil
}

type stalling struct {
	net.Conn
	limit time.Duration
}

func (c *stalling) Write(data []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(data)
}

// transports has a patient one for the end of an upload: some servers put the parts together before they begin to answer.
type transports struct{ usual, patient *http.Transport }

func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.ContentLength > 0 {
		return t.patient.RoundTrip(r)
	}
	return t.usual.RoundTrip(r)
}

func (t transports) CloseIdleConnections() {
	t.usual.CloseIdleConnections()
	t.patient.CloseIdleConnections()
}

// objectURL gives the URL of an object: with the name of its bucket before the host at AWS, where that is no more than a name, else in
// the path.
func objectURL(endpoint, region, bucket, key string) (*url.URL, error) {
	host := endpoint
	if endpoint == "" {
		host = "https://s3." + region + ".amazonaws.com"
		if !strings.Contains(bucket, ".") { // no certificate covers two labels
			host, bucket = "https://"+bucket+".s3."+region+".amazonaws.com", ""
		}
	}
	u, err := url.Parse(host)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%.200q is not the endpoint of an S3 server", host).
			WithHint("write https://HOST or https://HOST:PORT (--s3-endpoint, AWS_ENDPOINT_URL_S3), and a region's name")
	}
	path := strings.TrimSuffix(u.Path, "/") + "/"
	if bucket != "" {
		path += bucket + "/"
	}
	u.Path = path + key
	u.RawPath = escape(u.Path, true)
	return u, nil
}

// String names the object.
func (c *Client) String() string { return Scheme + c.bucket + "/" + c.key }

// answer is what a server said, without what it gave.
type answer struct {
	header http.Header
	body   []byte
}

// do asks for something, again and again while that may help, and returns what the server said. again says that an earlier try may have
// been carried out.
func (c *Client) do(ctx context.Context, method, suffix, query string, body []byte) (a answer, again bool, err error) {
	for try := 0; ; try++ {
		var res *http.Response
		if res, err = c.once(ctx, method, suffix, query, body, nil); err == nil {
			a.header = res.Header
			a.body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
			res.Body.Close()
			if err == nil && bytes.Contains(a.body, []byte("<Error>")) { // also with status 200, when it had begun to answer
				err = c.problem(&http.Response{StatusCode: http.StatusInternalServerError, Header: res.Header}, a.body)
			}
			if err == nil {
				return a, again, c.unlike(method, &a)
			}
		}
		if !temporary(err) || try+1 >= c.tries || c.wait(ctx, try) != nil {
			return a, again, c.explain(ctx, err)
		}
		again = true
	}
}

// unlike refuses an answer that is no S3 server's, such as the page of a proxy that wants a login first: what was written has a tag, and of
// what was deleted nothing is said.
func (c *Client) unlike(method string, a *answer) error {
	if (method != http.MethodPut || a.header.Get("Etag") != "") && (method != http.MethodDelete || len(bytes.TrimSpace(a.body)) == 0) {
		return nil
	}
	return skerry.Errorf(skerry.CodeUnavailable, "%s answers as no S3 server does, and nobody knows what became of %s", c.url.Host, c).
		WithHint("is the endpoint that of an S3 server, and is there no proxy on the way that wants a login?")
}

// once sends one request, and returns its answer unless that is an error.
func (c *Client) once(ctx context.Context, method, suffix, query string, body []byte, headers http.Header) (*http.Response, error) {
	u := *c.url
	u.Path += suffix
	u.RawPath += suffix
	u.RawQuery = query
	ctx, cancel := context.WithCancel(ctx)
	ask, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, err
	}
	for name, values := range headers {
		ask.Header[name] = values
	}
	sign(ask, c.who, c.region, c.now(), sha256.Sum256(body))
	res, err := c.http.Do(ask)
	if err != nil {
		cancel()
		return nil, err
	}
	res.Body = &answering{from: res.Body, cancel: cancel, quiet: c.quiet}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return nil, c.problem(res, text)
}

// wait pauses before a request is repeated, longer each time, and never as long as others that failed at the same moment.
func (c *Client) wait(ctx context.Context, try int) error {
	pause := min(c.pause<<try, longestPause)
	t := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// partSize is how large the parts of an upload are of which so many bytes are expected: all have one size, which some servers demand.
func (c *Client) partSize(expected int64) int64 {
	const mib = 1 << 20
	least := (expected + expected/16) / (mostParts - 1000) // encryption adds something
	return max(c.parts, (least+mib-1)/mib*mib)
}

// part numbers and entity tags of an upload.
func completion(tags []string) []byte {
	var b bytes.Buffer
	b.WriteString("<CompleteMultipartUpload>")
	for i, tag := range tags {
		b.WriteString("<Part><PartNumber>" + strconv.Itoa(i+1) + "</PartNumber><ETag>" + escapeXML(tag) + "</ETag></Part>")
	}
	b.WriteString("</CompleteMultipartUpload>")
	return b.Bytes()
}
