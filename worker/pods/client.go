package pods

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client speaks to an API server. How it proves who it is (certificates, tokens, programs of clouds) is client-go's; the few kinds of
// objects that we need are our own types, because those of Kubernetes take longer to compile than the rest of the program.
type Client struct {
	base string
	http *http.Client
	// upgrade opens a WebSocket.
	upgrade func(ctx context.Context, url string) (*websocket.Conn, error)
}

// Connection says how to reach an API server.
type Connection struct {
	Kubeconfig string // a file; empty: that of KUBECONFIG, else the service account of the pod that this program runs in
	Context    string // of the file; empty: its current one
}

// requestTime bounds one request that is answered at once.
const requestTime = 30 * time.Second

// answerMax bounds one answer.
const answerMax = 64 << 20

// Connect reads how to reach the API server. Nothing is asked of it yet.
func Connect(to Connection) (*Client, string, error) {
	var config *rest.Config
	namespace := ""
	inside, err := rest.InClusterConfig()
	if to.Kubeconfig == "" && os.Getenv("KUBECONFIG") == "" && err == nil {
		config = inside
		if b, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
			namespace = strings.TrimSpace(string(b))
		}
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = to.Kubeconfig
		load := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: to.Context})
		if config, err = load.ClientConfig(); err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		if namespace, _, err = load.Namespace(); err != nil {
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
	}
	config.UserAgent = managedBy
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	client.Timeout = 0 // each request has its own; a watch has none
	// An API server redirects nobody. One that does would have this machine ask others, for whoever reads a log.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, err := url.Parse(config.Host)
	if err == nil && base.Host == "" {
		base, err = url.Parse("https://" + config.Host)
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: address of the API server: %w", err)
	}
	upgrade, err := upgrader(config)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	return &Client{strings.TrimSuffix(base.String(), "/"), client, upgrade}, namespace, nil
}

// APIError is what an API server says instead of doing what it was asked.
type APIError struct {
	Code       int
	Reason     string
	Message    string
	RetryAfter time.Duration
}

func (e *APIError) Error() string {
	return fmt.Sprintf("Kubernetes refuses: %s (%s, status %d)", clean(e.Message, maxReason), clean(cmp.Or(e.Reason, "no reason"), 60), e.Code)
}

// passing reports whether an error may be gone when the same is asked again later: the server could not be reached, or could not do it now.
func passing(err error) bool {
	var e *APIError
	if !errors.As(err, &e) {
		return err != nil
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotFound:
		return e.Reason == "" // not of the API server, but of something in front of it
	case http.StatusConflict:
		return !exists(err) // such as two that change a quota at once
	}
	return e.Code >= 500 || e.Code < 400 // a redirect is one of something in front of it, too
}

// exists reports whether an object was not made because there is one of its name.
func exists(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Code == http.StatusConflict && e.Reason == "AlreadyExists"
}

// absent reports whether the API server says that there is no such object.
func absent(err error) bool { return status(err) == http.StatusNotFound && !passing(err) }

func status(err error) int {
	var e *APIError
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// open sends a request and gives the answer's body if the server did what it was asked.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, body any) (io.ReadCloser, error) {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(data)
	}
	to := c.base + path
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, to, send)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the API server of Kubernetes cannot be reached: %w", err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res.Body, nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	return nil, refusal(res.StatusCode, res.Header.Get("Retry-After"), data)
}

// refusal reads what a server says that did not do it.
func refusal(code int, after string, data []byte) *APIError {
	var said struct {
		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Details struct {
			RetryAfter int `json:"retryAfterSeconds"`
		} `json:"details"`
	}
	if json.Unmarshal(data, &said) != nil || said.Message == "" {
		said.Message = cmp.Or(clean(string(data), maxReason), http.StatusText(code))
	}
	seconds, err := strconv.Atoi(after)
	if err != nil {
		seconds = said.Details.RetryAfter
	}
	return &APIError{code, said.Reason, said.Message, time.Duration(min(max(seconds, 0), 60)) * time.Second}
}

// do sends a request and reads the answer; out may be nil.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	return c.atMost(ctx, answerMax, method, path, query, body, out)
}

// errTooLarge says that an answer has more bytes than are taken.
var errTooLarge = errors.New("it is too large")

// atMost is do for an answer of at most so many bytes.
func (c *Client) atMost(ctx context.Context, room int, method, path string, query url.Values, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	res, err := c.open(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer res.Close()
	data, err := io.ReadAll(io.LimitReader(res, int64(room)+1))
	switch {
	case err != nil:
		return fmt.Errorf("answer of the API server: %w", err)
	case len(data) > room:
		return fmt.Errorf("answer of the API server: %w: it has more than %d bytes", errTooLarge, room)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("answer of the API server: %w", err)
	}
	return nil
}

// Waits between tries of what may work later.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// pause waits before the next try; false: ctx has ended.
func pause(ctx context.Context, wait *time.Duration, err error) bool {
	*wait = min(max(2**wait, firstRetry), lastRetry)
	d := *wait
	var e *APIError
	if errors.As(err, &e) && e.RetryAfter > d {
		d = e.RetryAfter
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// persist does something until it works, is refused for good, or ctx ends: an API server that is away for an hour is no fault of an
// instance.
func persist(ctx context.Context, log *slog.Logger, what string, f func() error) error {
	return retry(ctx, log, what, passing, f)
}

// insist is persist for what nobody asks for again: what is refused, as by a webhook that is away, may be granted later.
func insist(ctx context.Context, log *slog.Logger, what string, f func() error) error {
	return retry(ctx, log, what, func(error) bool { return true }, f)
}

func retry(ctx context.Context, log *slog.Logger, what string, worth func(error) bool, f func() error) error {
	var wait time.Duration
	for {
		err := f()
		if err == nil || !worth(err) || ctx.Err() != nil {
			return err
		}
		log.Warn(what+" has to wait", "err", err)
		if !pause(ctx, &wait, err) {
			return err
		}
	}
}

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
}

func secretPath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(name)
}

// collection is the path of all objects of a kind, from that of one of them.
func collection(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// createPod makes a pod. One of that name that is there already is ours, because its name has the token and the attempt: an earlier life
// of this program made it, or the answer to an earlier try was lost.
func (c *Client) createPod(ctx context.Context, p *Pod) (*Pod, error) {
	path, made := podPath(p.Metadata.Namespace, p.Metadata.Name), &Pod{}
	err := c.do(ctx, http.MethodPost, collection(path), nil, p, made)
	if exists(err) {
		made = &Pod{}
		err = c.do(ctx, http.MethodGet, path, nil, nil, made)
	}
	return made, err
}

// deletePod asks for the end of a pod with its own grace. It is never forced: the API server would forget a pod that may still run. One
// that is not there, or is another one of that name, is no error.
func (c *Client) deletePod(ctx context.Context, namespace, name, uid string, grace *int64) error {
	if name == "" {
		return nil // the path would be that of all pods
	}
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if uid != "" {
		body["preconditions"] = map[string]string{"uid": uid}
	}
	if grace != nil {
		body["gracePeriodSeconds"] = max(*grace, 1)
	}
	err := c.do(ctx, http.MethodDelete, podPath(namespace, name), nil, body, nil)
	if absent(err) || status(err) == http.StatusConflict && uid != "" {
		return nil
	}
	return err
}

// secretObject is a secret.
type secretObject struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   Meta              `json:"metadata"`
	Data       map[string][]byte `json:"data"`
}

// putSecret makes a secret, or replaces what is in it.
func (c *Client) putSecret(ctx context.Context, s *secretObject) error {
	path := secretPath(s.Metadata.Namespace, s.Metadata.Name)
	err := c.do(ctx, http.MethodPost, collection(path), nil, s, nil)
	if exists(err) {
		err = c.do(ctx, http.MethodPut, path, nil, s, nil)
		if absent(err) { // it was swept away meanwhile
			err = c.do(ctx, http.MethodPost, collection(path), nil, s, nil)
		}
	}
	return err
}

// merge changes a part of an object.
func (c *Client) merge(ctx context.Context, path string, change any) error {
	return c.do(ctx, http.MethodPatch, path, nil, change, nil)
}

func (c *Client) deleteSecret(ctx context.Context, namespace, name string) error {
	err := c.do(ctx, http.MethodDelete, secretPath(namespace, name), nil, nil, nil)
	if absent(err) {
		return nil
	}
	return err
}
