package oakestra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// call is a request of a client while it is answered.
type call struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request
}

// body reads what the client sent, which is JSON.
func (c *call) body() ([]byte, error) {
	data, err := io.ReadAll(c.r.Body)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge()
	case err != nil:
		return nil, skerry.Errorf(skerry.CodeInvalid, "the body did not arrive in time")
	case !json.Valid(data):
		return nil, skerry.Errorf(skerry.CodeInvalid, "the body is not JSON").WithHint("%s", whereNot(data))
	}
	http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // it would end a long answer, too
	return data, api.CheckKeys(data)
}

// sla reads an SLA, which takes some computing, of whoever has logged in.
func (c *call) sla() ([]converted, error) {
	if _, err := send[api.Who](c, http.MethodGet, "/v1/auth/whoami", nil); err != nil {
		return nil, err
	}
	data, err := c.body()
	if err != nil {
		return nil, err
	}
	return readSLA(data)
}

// whereNot says where JSON is none.
func whereNot(data []byte) string {
	var value any
	err := json.Unmarshal(data, &value)
	var wrong *json.SyntaxError
	if !errors.As(err, &wrong) {
		return ""
	}
	before := data[:min(max(wrong.Offset, 0), int64(len(data)))]
	return fmt.Sprintf("line %d: %s", 1+bytes.Count(before, []byte("\n")), err)
}

func tooLarge() error {
	return skerry.Errorf(skerry.CodeTooLarge, "the body is larger than %d bytes", maxBody)
}

// send has the REST interface carry out an operation as the client's user.
func send[T any](c *call, method, path string, in any) (out T, err error) {
	data, err := sendRaw(c, method, path, in)
	if err != nil || len(data) == 0 {
		return out, err
	}
	return out, json.Unmarshal(data, &out)
}

func sendRaw(from *call, method, path string, in any) ([]byte, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(from.r.Context(), method, "http://"+host+path, body)
	if err != nil {
		return nil, err
	}
	req.RemoteAddr = from.r.RemoteAddr // by which the interface limits and audits
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := from.r.Header.Get("Authorization"); token != "" {
		req.Header.Set("Authorization", token)
	}
	res := &answer{header: http.Header{}}
	from.h.opt.API.ServeHTTP(res, req)
	if res.status >= 400 {
		var p api.Problem
		if json.Unmarshal(res.body.Bytes(), &p) != nil || p.Code == "" {
			return nil, skerry.Errorf(skerry.CodeInternal, "the server answered %d", res.status)
		}
		return nil, &skerry.Error{Code: p.Code, Message: p.Detail, Hint: p.Hint, Problems: p.Problems}
	}
	return res.body.Bytes(), nil
}

// host is in the requests that never leave the process.
const host = "oakestra.internal"

// answer keeps an answer of the REST interface.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// turns has the changes of one application made one after another, because each looks first at what there is.
type turns struct {
	mu sync.Mutex // protects m, and takers of each
	m  map[skerry.AppKey]*turn
}

type turn struct {
	sync.Mutex
	takers int
}

// take waits until nobody else changes an application; the caller gives the turn back by release.
func (t *turns) take(key skerry.AppKey) (release func()) {
	t.mu.Lock()
	one := t.m[key]
	if one == nil {
		one = &turn{}
		t.m[key] = one
	}
	one.takers++
	t.mu.Unlock()
	one.Lock()
	return func() {
		one.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.takers--; one.takers == 0 {
			delete(t.m, key)
		}
	}
}
