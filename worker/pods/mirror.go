package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Pages and watches.
const (
	pageSize  = 500
	pageBytes = 16 << 20 // a page of more is asked for in parts: how large pods are is up to whoever makes them
	pagesMost = 2000     // a million objects: more is a server that goes round in circles
	watchTime = 4 * time.Minute
	watchMore = 30 * time.Second // that a server may take to end a watch by itself
)

// mirror keeps what the API server has of one kind of objects: it lists them, in pages, and watches from there on. A watch that ends is
// begun again where it was; one whose beginning the server has forgotten (410), or that it refuses for good, makes it list anew.
type mirror[T any] struct {
	client *Client
	path   string
	meta   func(*T) *Meta
	// set takes an object as it is now, or as it last was. reset takes all, after a list. They are called one at a time.
	set   func(name string, object *T, gone bool)
	reset func(all map[string]*T)
	trim  func(object *T) // takes away what nobody asks for; may be nil
	log   *slog.Logger

	once   sync.Once
	synced chan struct{} // closed after the first list
	mu     sync.Mutex
	broken error // why it is behind; nil: it is not
	told   func()
}

func newMirror[T any](c *Client, path string, meta func(*T) *Meta, log *slog.Logger) *mirror[T] {
	return &mirror[T]{client: c, path: path, meta: meta, log: log, synced: make(chan struct{}), told: func() {}}
}

// health says why the mirror is behind; nil: as far as it knows it is not.
func (m *mirror[T]) health() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

func (m *mirror[T]) note(err error) {
	m.mu.Lock()
	was := m.broken
	m.broken = err
	m.mu.Unlock()
	if (was == nil) != (err == nil) {
		if err != nil {
			m.log.Warn("Kubernetes is not heard", "path", m.path, "err", err)
		}
		m.told()
	}
}

// errExpired says that the server has forgotten where a watch or a list is to go on.
var errExpired = errors.New("the API server no longer has that version")

// run mirrors until ctx ends.
func (m *mirror[T]) run(ctx context.Context) {
	var wait time.Duration
	for ctx.Err() == nil {
		version, err := m.list(ctx)
		if err == nil {
			m.note(nil)
			m.once.Do(func() { close(m.synced) })
			began := time.Now()
			if err = m.watchOn(ctx, version); time.Since(began) > lastRetry { // else lists would follow each other where a watch is refused
				wait = 0
			}
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errExpired) {
			m.note(err)
		}
		if !pause(ctx, &wait, err) {
			return
		}
	}
}

// list reads everything.
func (m *mirror[T]) list(ctx context.Context) (version string, err error) {
	all := map[string]*T{}
	query, limit := url.Values{}, pageSize
	for range pagesMost {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		query.Set("limit", fmt.Sprint(limit))
		if err := m.client.atMost(ctx, pageBytes, http.MethodGet, m.path, query, nil, &page); err != nil {
			if errors.Is(err, errTooLarge) && limit > 1 {
				limit /= 2
				continue
			}
			if status(err) == http.StatusGone {
				return "", errExpired
			}
			return "", err
		}
		if page.Metadata.ResourceVersion == "" {
			return "", fmt.Errorf("the list %s has no version: it is not of an API server", m.path)
		}
		for _, item := range page.Items {
			if o := m.read(item); o != nil {
				all[m.key(o)] = o
			}
		}
		if page.Metadata.Continue == "" {
			m.reset(all)
			return page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
		limit = min(2*limit, pageSize)
	}
	return "", fmt.Errorf("the list %s does not end", m.path)
}

func (m *mirror[T]) key(o *T) string {
	meta := m.meta(o)
	if meta.Namespace == "" {
		return meta.Name
	}
	return meta.Namespace + "/" + meta.Name
}

// read reads one object. One that cannot be read is left out: it must not keep the others from being seen.
func (m *mirror[T]) read(data json.RawMessage) *T {
	o := new(T)
	if err := json.Unmarshal(data, o); err != nil {
		m.log.Warn("an object of Kubernetes cannot be read", "path", m.path, "err", err)
		if json.Unmarshal(data, &struct {
			Metadata *Meta `json:"metadata"`
		}{m.meta(o)}) != nil {
			return nil
		}
	}
	if m.meta(o).Name == "" {
		return nil
	}
	if m.trim != nil {
		m.trim(o)
	}
	return o
}

// watchOn watches again and again from a version on, until that cannot go on.
func (m *mirror[T]) watchOn(ctx context.Context, version string) error {
	var wait time.Duration
	for {
		next, err := m.watch(ctx, version)
		if errors.Is(err, errExpired) || ctx.Err() != nil {
			return err
		}
		if next != version {
			version, wait = next, 0
		}
		if err != nil {
			m.note(err)
			if !passing(err) {
				return err
			}
		}
		if !pause(ctx, &wait, err) {
			return ctx.Err()
		}
	}
}

// watch follows changes until the server ends it, and gives the version that it came to.
func (m *mirror[T]) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchMore)
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {fmt.Sprint(int(watchTime.Seconds()))}}
	body, err := m.client.open(ctx, http.MethodGet, m.path, query, nil)
	if status(err) == http.StatusGone {
		return version, errExpired
	}
	if err != nil {
		return version, err
	}
	defer body.Close()
	m.note(nil)
	limited := &io.LimitedReader{R: body, N: answerMax}
	events := json.NewDecoder(limited)
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		limited.N = answerMax
		if err := events.Decode(&event); err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return version, fmt.Errorf("watch %s: %w", m.path, err)
			}
			return version, nil // that is how a watch ends
		}
		if event.Type == "ERROR" {
			var said struct {
				Code int `json:"code"`
			}
			_ = json.Unmarshal(event.Object, &said)
			if said.Code == http.StatusGone {
				return version, errExpired
			}
			return version, refusal(said.Code, "", event.Object)
		}
		object := m.read(event.Object)
		if event.Type == "BOOKMARK" {
			var mark struct {
				Metadata Meta `json:"metadata"`
			}
			if json.Unmarshal(event.Object, &mark) == nil && mark.Metadata.ResourceVersion != "" {
				version = mark.Metadata.ResourceVersion
			}
			continue
		}
		if object == nil {
			continue
		}
		if v := m.meta(object).ResourceVersion; v != "" {
			version = v
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			m.set(m.key(object), object, false)
		case "DELETED":
			m.set(m.key(object), object, true)
		}
	}
}
