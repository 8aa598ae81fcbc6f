// Package otlp pushes what a role knows of itself to an OpenTelemetry collector: metrics, logs and traces, by OTLP over HTTP in its JSON
// form (the OpenTelemetry Protocol, version 1, sections OTLP/HTTP and JSON Protobuf Encoding). OpenTelemetry's own SDK does the same; it
// and what it needs would add megabytes to a program for small boards.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueLimit bounds the records, and the spans, that wait for the collector; the oldest go first.
	queueLimit = 4096
	batchLimit = 512
	// queueBytes and batchBytes bound them, too, by how long they are: a line of an instance has up to a MiB. One is always taken.
	queueBytes = 4 << 20
	batchBytes = 1 << 20
	// flushEvery is how often logs and spans are sent, if a batch is not full before.
	flushEvery  = 5 * time.Second
	sendTimeout = 10 * time.Second
	leaveTime   = 3 * time.Second
	retryFirst  = time.Second
	retryMost   = time.Minute
	// answerLimit bounds what is read of an answer.
	answerLimit = 64 << 10
	// dropsTold is how often a log says that something was dropped.
	dropsTold = time.Minute
)

// Options say where a role pushes to, and what.
type Options struct {
	Endpoint string            // http or https URL, without /v1/metrics and so on
	Headers  map[string]string // with each request
	CAs      *x509.CertPool    // that may have signed the collector's certificate; nil: those of the system
	Interval time.Duration     // between two pushes of metrics
	Resource map[string]string // attributes of whoever pushes, such as service.name
	// Log is told of a collector that is away. It must not lead back here.
	Log *slog.Logger
}

// Exporter pushes.
type Exporter struct {
	opt    Options
	began  time.Time
	client *http.Client
	rng    func(n int64) int64

	metrics atomic.Pointer[Metrics]
	mu      sync.Mutex
	who     map[string]string

	logs  queue[logRecord]
	lines queue[logRecord] // of instances: what they write crowds out nothing of the role
	spans queue[span]
}

// Metrics writes metrics as Prometheus text.
type Metrics func(ctx context.Context, out io.Writer) error

// Describe adds which role of a federation or site pushes. It is called before there is something to push of it.
func (e *Exporter) Describe(tier, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.who = map[string]string{"skerry.role": tier, "service.instance.id": tier + "/" + name}
	maps.Copy(e.who, e.opt.Resource)
}

// resource is who pushes.
func (e *Exporter) resource() resource {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.who == nil {
		return resource{attributes(e.opt.Resource)}
	}
	return resource{attributes(e.who)}
}

// Measure says what metrics there are to push.
func (e *Exporter) Measure(m Metrics) { e.metrics.Store(&m) }

// queue is what waits.
type queue[T any] struct {
	mu      sync.Mutex
	items   []T
	weigh   func(T) int // nil: they are all short
	weight  int         // of the items
	dropped int         // so far, because there was no room
	refused int         // so far, by the collector
	full    chan struct{}
	room    chan struct{} // nil: nobody waits for it
}

func (q *queue[T]) add(x T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(x)
}

func (q *queue[T]) addLocked(x T) {
	for !q.fits(x) {
		q.takeLocked(1)
		q.dropped++
	}
	q.items, q.weight = append(q.items, x), q.weight+q.weightOf(x)
	if len(q.items) >= batchLimit || q.weight >= batchBytes {
		select {
		case q.full <- struct{}{}:
		default:
		}
	}
}

func (q *queue[T]) weightOf(x T) int {
	if q.weigh == nil {
		return 0
	}
	return q.weigh(x)
}

// fits reports whether there is room for one more.
func (q *queue[T]) fits(x T) bool {
	return len(q.items) == 0 || len(q.items) < queueLimit && q.weight+q.weightOf(x) <= queueBytes
}

// takeLocked takes away the first n.
func (q *queue[T]) takeLocked(n int) {
	for _, x := range q.items[:n] {
		q.weight -= q.weightOf(x)
	}
	rest := append(q.items[:0], q.items[n:]...)
	clear(q.items[len(rest):]) // or their texts would stay
	q.items = rest
}

// addWhenRoom waits until there is room, or ctx ends.
func (q *queue[T]) addWhenRoom(ctx context.Context, x T) bool {
	for {
		q.mu.Lock()
		free := q.fits(x)
		if free {
			q.addLocked(x)
		}
		q.mu.Unlock()
		if free {
			q.signal() // the next one in line
			return true
		}
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
}

// signal wakes one who waits for room.
func (q *queue[T]) signal() {
	select {
	case q.room <- struct{}{}:
	default:
	}
}

// next gives what is to be sent next, which stays until it is done, and how many were dropped so far.
func (q *queue[T]) next() (batch []T, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, weight := 0, 0
	for n < min(len(q.items), batchLimit) && (n == 0 || weight+q.weightOf(q.items[n]) <= batchBytes) {
		weight += q.weightOf(q.items[n])
		n++
	}
	return append([]T(nil), q.items[:n]...), q.dropped
}

// done takes away what was sent, of which the collector refused some. What was dropped meanwhile was of it.
func (q *queue[T]) done(n, droppedBefore, refused int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused += refused
	q.takeLocked(max(0, n-(q.dropped-droppedBefore)))
	q.signal()
}

// lost is how many went nowhere so far.
func (q *queue[T]) lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped + q.refused
}

// left is how many wait.
func (q *queue[T]) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// New checks the options.
func New(opt Options) (*Exporter, error) {
	u, err := url.Parse(opt.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the address of a collector, such as http://127.0.0.1:4318", opt.Endpoint)
	}
	opt.Endpoint = strings.TrimSuffix(opt.Endpoint, "/")
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{RootCAs: opt.CAs, MinVersion: tls.VersionTLS12}, MaxIdleConns: 1, IdleConnTimeout: 2 * time.Minute}
	out := &Exporter{opt: opt, began: time.Now(), rng: rand.Int64N, client: &http.Client{Transport: transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}} // headers hold tokens
	out.logs.full, out.lines.full, out.spans.full = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	out.lines.room = make(chan struct{}, 1)
	out.logs.weigh, out.lines.weigh = logRecord.weight, logRecord.weight
	return out, nil
}

// Run pushes until ctx ends, and then what waits, for a short time.
func (e *Exporter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { e.pushMetrics(ctx) })
	wg.Go(func() { push(ctx, e, &e.logs, "logs", e.logBody) })
	wg.Go(func() { push(ctx, e, &e.lines, "logs", e.logBody) })
	wg.Go(func() { push(ctx, e, &e.spans, "traces", e.spanBody) })
	wg.Wait()
	e.client.CloseIdleConnections()
	return nil
}

func (e *Exporter) pushMetrics(ctx context.Context) {
	tick := time.NewTicker(e.opt.Interval)
	defer tick.Stop()
	var state teller
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		write := e.metrics.Load()
		if write == nil {
			continue
		}
		var text bytes.Buffer
		body, err := any(nil), (*write)(ctx, &text)
		if err == nil {
			body, err = e.metricBody(&text, time.Now())
		}
		if err == nil {
			err = e.send(ctx, "metrics", body)
		}
		if ctx.Err() == nil {
			state.tell(e.opt.Log, "metrics", err, 0) // the next ones say the same, and more
		}
	}
}

// push sends what a queue has, until ctx ends.
func push[T any](ctx context.Context, to *Exporter, waiting *queue[T], signal string, body func([]T) any) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	// What is under way at the end is taken, or would be sent twice.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaveTime, stop) })()
	var state teller
	for {
		select {
		case <-tick.C:
		case <-waiting.full:
		case <-ctx.Done():
			for batch, before := waiting.next(); len(batch) > 0; batch, before = waiting.next() {
				err := to.send(sending, signal, body(batch))
				if errors.As(err, new(*retryable)) {
					to.opt.Log.Warn("telemetry is left behind", "signal", signal, "lost", waiting.left(), "err", err)
					return
				}
				waiting.done(len(batch), before, refusedOf(err, len(batch)))
				state.tell(to.opt.Log, signal, err, waiting.lost())
			}
			return
		}
		deliver(ctx, sending, to, waiting, signal, body, &state)
	}
}

// deliver sends what waits, again and again where that may help.
func deliver[T any](ctx, sending context.Context, to *Exporter, waiting *queue[T], signal string, body func([]T) any, state *teller) {
	wait := retryFirst
	for batch, before := waiting.next(); len(batch) > 0 && ctx.Err() == nil; batch, before = waiting.next() {
		err := to.send(sending, signal, body(batch))
		var later *retryable
		again := errors.As(err, &later)
		if !again { // it was taken, or never will be
			waiting.done(len(batch), before, refusedOf(err, len(batch)))
		}
		if ctx.Err() == nil {
			state.tell(to.opt.Log, signal, err, waiting.lost())
		}
		if !again {
			wait = retryFirst
			continue
		}
		pause := max(later.after, wait/2+time.Duration(to.rng(int64(wait/2))))
		wait = min(2*wait, retryMost)
		select {
		case <-time.After(min(pause, 10*retryMost)):
		case <-ctx.Done():
		}
	}
}

// retryable is what OTLP lets a client try again.
type retryable struct {
	after time.Duration // as the collector asked; 0: it did not
	err   error
}

func (r *retryable) Error() string { return r.err.Error() }
func (r *retryable) Unwrap() error { return r.err }

// partly is that a collector took a request, but for some of it.
type partly struct {
	refused int
	why     string
}

func (p *partly) Error() string {
	return fmt.Sprintf("the collector did not take %d of a request: %.300s", p.refused, p.why)
}

// refusedOf gives how many of a request of n were refused, by what it ended with.
func refusedOf(err error, n int) int {
	if some, ok := errors.AsType[*partly](err); ok {
		return min(some.refused, n)
	}
	if err != nil {
		return n
	}
	return 0
}

// send posts one request. A partial success is an error that is not tried again.
func (e *Exporter) send(ctx context.Context, signal string, body any) error {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := json.NewEncoder(zip).Encode(body); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.opt.Endpoint+"/v1/"+signal, &packed)
	if err != nil {
		return err
	}
	for name, value := range e.opt.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "skerry")
	res, err := e.client.Do(req)
	if err != nil {
		return &retryable{err: err}
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, answerLimit))
	switch res.StatusCode {
	case http.StatusOK:
		return partial(data, res.Header.Get("Content-Type"))
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return &retryable{time.Duration(min(max(seconds, 0), 3600)) * time.Second, fmt.Errorf("the collector answers %s", res.Status)}
	}
	var why struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(data, &why)
	return fmt.Errorf("the collector answers %s %.300s", res.Status, why.Message)
}

// partial reads how many items of a request the collector did not take. An answer in its other form is taken for success, as is none; what
// is neither, such as the page of a proxy that wants a login first, is no collector's.
func partial(data []byte, kind string) error {
	type part struct {
		Message string      `json:"errorMessage"`
		Points  json.Number `json:"rejectedDataPoints"` // a number may be a string there
		Records json.Number `json:"rejectedLogRecords"`
		Spans   json.Number `json:"rejectedSpans"`
	}
	var answer struct {
		Partial part `json:"partialSuccess"`
	}
	if len(bytes.TrimSpace(data)) == 0 || strings.HasPrefix(kind, "application/x-protobuf") {
		return nil
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return &retryable{err: fmt.Errorf("the collector answers 200 and no OTLP: %w", err)}
	}
	for _, n := range []json.Number{answer.Partial.Points, answer.Partial.Records, answer.Partial.Spans} {
		if refused, err := n.Int64(); err == nil && refused > 0 {
			return &partly{int(min(refused, math.MaxInt32)), answer.Partial.Message}
		}
	}
	return nil
}

// teller tells of a collector that is away, and that it is back, once, and of what was lost.
type teller struct {
	away bool
	lost int
	told time.Time // when something was said to be dropped last
}

func (t *teller) tell(log *slog.Logger, signal string, err error, lost int) {
	switch {
	case err != nil && !t.away:
		log.Warn("telemetry is not taken", "signal", signal, "err", err)
	case err == nil && t.away:
		log.Info("telemetry is taken again", "signal", signal, "lost", lost-t.lost)
		t.lost = lost
	case err == nil && lost > t.lost && time.Since(t.told) >= dropsTold: // it was too much for the room that there is
		log.Warn("telemetry was dropped", "signal", signal, "lost", lost-t.lost)
		t.lost, t.told = lost, time.Now()
	}
	t.away = err != nil
}
