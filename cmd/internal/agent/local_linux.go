package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/wire"
	workercore "skerry.dev/skerry/worker/core"
)

// workerLocal answers for a worker.
type workerLocal struct {
	name     string
	version  string
	w        *node.Worker
	programs *programs // nil: its program cannot be exchanged
}

func (l *workerLocal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/instances"); ok {
		l.instances(w, r, strings.TrimPrefix(rest, "/"))
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /status":
		st, err := l.status(r.Context())
		role.Answer(w, st, err)
	case "POST /upgrade":
		l.programs.serve(w, r)
	case "POST /hold", "POST /release", "POST /approve":
		var q freezeRequest
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q)
		switch {
		case err != nil:
			err = skerry.Errorf(skerry.CodeInvalid, "%w", err)
		case r.URL.Path == "/hold":
			err = l.w.Freeze(r.Context(), q.Reason)
		case r.URL.Path == "/release":
			err = l.w.Release(r.Context())
		default:
			err = l.w.Approve(r.Context(), q.Instance)
		}
		role.Answer(w, struct{}{}, err)
	case "POST /check":
		role.Answer(w, role.Status{Role: "worker", Name: l.name, Runtimes: l.w.Recheck(r.Context())}, nil)
	default:
		role.Answer(w, nil, skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s", r.URL.Path))
	}
}

// status tells how the worker fares.
func (l *workerLocal) status(ctx context.Context) (role.Status, error) {
	st := role.Status{Role: "worker", Name: l.name, Version: l.version, Pid: os.Getpid(), Ready: true}
	if err := l.w.Ready(); err != nil {
		st.Ready, st.Why = false, err.Error()
	}
	up, why := l.w.Parent()
	st.Parent = &role.ParentStatus{Connected: up, Why: why}
	st.Runtimes, st.Secrets = l.w.Runtimes(), l.w.SecretsKey()
	st.Coordinate = l.w.Coordinate()
	o := l.w.Overlay(ctx)
	st.Overlay = &o
	var err, heldErr error
	st.Frozen, heldErr = l.w.Frozen(ctx)
	st.Instances, err = l.w.Instances(ctx)
	if l.programs != nil {
		if state, err := l.programs.dir.State(); err == nil { // else the log tells at every start
			st.Programs = &state
		}
	}
	return st, errors.Join(err, heldErr)
}

// instances answers as the API does, as far as a worker can.
func (l *workerLocal) instances(w http.ResponseWriter, r *http.Request, rest string) {
	name, what, deeper := strings.Cut(rest, "/")
	id := skerry.InstanceID(name)
	switch {
	case r.Method == http.MethodPost && what == "restart":
		_, err := l.w.Do(r.Context(), workercore.RestartLocal{ID: id})
		role.Answer(w, struct{}{}, err)
	case r.Method == http.MethodGet && deeper:
		r.URL.Path = "/instances/" + rest
		l.w.ServeHTTP(w, r)
	case r.Method == http.MethodGet:
		list, err := l.w.Views(r.Context())
		if name == "" {
			q := r.URL.Query()
			list = slices.DeleteFunc(list, func(i wire.Instance) bool {
				k := i.Service
				return q.Get("namespace") != "" && q.Get("namespace") != k.App.Namespace || q.Get("app") != "" && q.Get("app") != k.App.Name ||
					q.Get("service") != "" && q.Get("service") != k.Service
			})
			role.Answer(w, struct {
				Items []wire.Instance `json:"items"`
			}{list}, err)
			return
		}
		n := slices.IndexFunc(list, func(i wire.Instance) bool { return i.ID == id })
		if err == nil && n < 0 {
			err = skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this device", id).
				WithHint("`skerry local get` lists those that are")
		}
		if err != nil {
			role.Answer(w, nil, err)
			return
		}
		role.Answer(w, list[n], nil)
	default:
		role.Answer(w, nil, skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s %s", r.Method, r.URL.Path))
	}
}
