package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// etcdClient speaks etcd's JSON gateway, which every member serves on its client address. The gRPC client would do the
// same and costs each process 6 MiB of memory and the binary 8 MB, also where etcd is not used.
type etcdClient struct {
	endpoints      []string // "http://host:2379"
	user, password string
	http           *http.Client

	mu    sync.Mutex
	at    int    // endpoint that answered last
	token string // of user
}

// The messages, as far as they are needed. 64-bit numbers are strings in this mapping, bytes are base64.
type (
	etcdHeader struct {
		Revision int64 `json:"revision,string"`
	}
	etcdKV struct {
		Key         []byte `json:"key"`
		Value       []byte `json:"value"`
		ModRevision int64  `json:"mod_revision,string"`
		// CreateRevision is of the commit that made the key.
		CreateRevision int64 `json:"create_revision,string"`
	}
	etcdRange struct {
		Key       []byte `json:"key"`
		RangeEnd  []byte `json:"range_end,omitempty"`
		Limit     int64  `json:"limit,omitempty,string"`
		Revision  int64  `json:"revision,omitempty,string"`
		KeysOnly  bool   `json:"keys_only,omitempty"`
		CountOnly bool   `json:"count_only,omitempty"`
	}
	etcdRangeResult struct {
		Header etcdHeader `json:"header"`
		KVs    []etcdKV   `json:"kvs"`
		More   bool       `json:"more"`
	}
	etcdPut struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
		Lease int64s `json:"lease,omitempty"`
	}
	etcdDelete struct {
		Key []byte `json:"key"`
	}
	etcdOp struct {
		Put    *etcdPut    `json:"request_put,omitempty"`
		Delete *etcdDelete `json:"request_delete_range,omitempty"`
		Range  *etcdRange  `json:"request_range,omitempty"`
	}
	etcdCompare struct {
		Target string `json:"target"`
		Result string `json:"result"`
		Key    []byte `json:"key"`
		// One of these; left out means 0.
		ModRevision    int64s `json:"mod_revision,omitempty"`
		CreateRevision int64s `json:"create_revision,omitempty"`
	}
	etcdTxn struct {
		Compare []etcdCompare `json:"compare,omitempty"`
		Success []etcdOp      `json:"success,omitempty"`
		Failure []etcdOp      `json:"failure,omitempty"`
	}
	etcdTxnResult struct {
		Header    etcdHeader `json:"header"`
		Succeeded bool       `json:"succeeded"`
		Responses []struct {
			Range etcdRangeResult `json:"response_range"`
		} `json:"responses"`
	}
	etcdWatch struct {
		Key           []byte `json:"key"`
		RangeEnd      []byte `json:"range_end"`
		StartRevision int64  `json:"start_revision,string"`
	}
	etcdWatchResult struct {
		Canceled        bool   `json:"canceled"`
		CancelReason    string `json:"cancel_reason"`
		CompactRevision int64  `json:"compact_revision,string"`
		Events          []struct {
			Type string `json:"type"` // "PUT", left out, or "DELETE"
			KV   etcdKV `json:"kv"`
		} `json:"events"`
	}
)

// etcdFailure is an error that etcd gave.
type etcdFailure struct {
	Code    int    `json:"code"` // of gRPC
	Message string `json:"message"`
	Err     string `json:"error"`
}

func (e *etcdFailure) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Err
}

// gRPC codes that matter here.
const (
	codeInvalid         = 3
	codeExhausted       = 8
	codeUnavailable     = 14
	codeUnauthenticated = 16
)

func newEtcdClient(at *url.URL, opt Options) *etcdClient {
	scheme := "http"
	if at.Scheme == "etcds" || opt.TLS != nil {
		scheme = "https"
	}
	conf := opt.TLS
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	// A member that vanished without a word is noticed in 25 seconds, also by a watch that only listens.
	dialer := net.Dialer{Timeout: opt.Timeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second,
		Interval: 5 * time.Second, Count: 3}}
	c := &etcdClient{http: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: conf,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 15 * time.Second, DisableCompression: true}}}
	for host := range strings.SplitSeq(at.Host, ",") {
		c.endpoints = append(c.endpoints, scheme+"://"+host)
	}
	if at.User != nil {
		c.user = at.User.Username()
		c.password, _ = at.User.Password()
	}
	return c
}

// call does one request. Reads go to the next member when one does not answer; a write does only when it surely was not
// sent, for it must not be done twice.
func (c *etcdClient) call(ctx context.Context, path string, write bool, in, out any) error {
	res, err := c.send(ctx, path, write, in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(out)
}

func (c *etcdClient) send(ctx context.Context, path string, write bool, in any) (*http.Response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	var lastErr error
	loggedIn := false
	for tries := 0; tries < len(c.endpoints)+1; tries++ {
		c.mu.Lock()
		at, token := c.at, c.token
		c.mu.Unlock()
		if c.user != "" && token == "" {
			if token, err = c.login(ctx, at); err != nil {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				lastErr = err
				c.next(at)
				continue
			}
			loggedIn = true
		}
		res, err := c.post(ctx, at, path, token, body)
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.next(at) // it may be silent; another one answers the next call
			}
			return nil, ctx.Err()
		}
		lastErr = err
		var op *net.OpError
		var f *etcdFailure
		switch {
		case errors.As(err, &f) && (f.Code == codeUnauthenticated || strings.Contains(f.Error(), "invalid auth token")) && c.user != "" &&
			!loggedIn:
			c.mu.Lock()
			c.token = ""
			c.mu.Unlock()
		case errors.As(err, &f) && f.Code != codeUnavailable:
			return nil, err
		case errors.As(err, &op) && op.Op == "dial", !write:
			c.next(at)
		default:
			c.next(at)
			return nil, err
		}
	}
	return nil, lastErr
}

// next moves on from a member that did not answer, unless somebody else did already.
func (c *etcdClient) next(from int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == from {
		c.at = (from + 1) % len(c.endpoints)
	}
}

func (c *etcdClient) post(ctx context.Context, at int, path, token string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoints[at]+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	// A member cut off from the others would be silent for ever: better that it says so.
	req.Header.Set("Grpc-Metadata-hasleader", "true")
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	f := &etcdFailure{}
	if json.Unmarshal(raw, f) != nil || f.Error() == "" {
		return nil, fmt.Errorf("%s answers %s; is it etcd 3.4 or newer, with its gRPC gateway on?", c.endpoints[at], res.Status)
	}
	return nil, f
}

func (c *etcdClient) login(ctx context.Context, at int) (string, error) {
	body, err := json.Marshal(map[string]string{"name": c.user, "password": c.password})
	if err != nil {
		return "", err
	}
	res, err := c.post(ctx, at, "/v3/auth/authenticate", "", body)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var out struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return "", err
	}
	c.mu.Lock()
	c.token = out.Token
	c.mu.Unlock()
	return out.Token, nil
}

// watch calls fn for each message until something ends it.
func (c *etcdClient) watch(ctx context.Context, w etcdWatch, fn func(etcdWatchResult) error) error {
	res, err := c.send(ctx, "/v3/watch", false, map[string]any{"create_request": w})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for d := json.NewDecoder(res.Body); ; {
		var m struct {
			Result etcdWatchResult `json:"result"`
			Error  *etcdFailure    `json:"error"`
		}
		if err := d.Decode(&m); err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		if err := fn(m.Result); err != nil {
			return err
		}
	}
}

func (c *etcdClient) close() { c.http.CloseIdleConnections() }
