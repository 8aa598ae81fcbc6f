package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/node"
)

// workerLocal answers for a worker.
type workerLocal struct {
	name string
	w    *node.Worker
}

func (l *workerLocal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /status":
		st := status{Role: "worker", Name: l.name, Version: version, Pid: os.Getpid(), Ready: true}
		if err := l.w.Ready(); err != nil {
			st.Ready, st.Why = false, err.Error()
		}
		up, why := l.w.Parent()
		st.Parent = &parentStatus{up, why}
		st.Runtimes = l.w.Runtimes()
		st.Coordinate = l.w.Coordinate()
		o := l.w.Overlay(r.Context())
		if l.w.NoOverlay != "" {
			o.Off = l.w.NoOverlay
		}
		st.Overlay = &o
		var err, heldErr error
		st.Held, heldErr = l.w.Held(r.Context())
		st.Instances, err = l.w.Instances(r.Context())
		answer(w, st, errors.Join(err, heldErr))
	case "POST /hold", "POST /release", "POST /approve":
		var q holdRequest
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q)
		switch {
		case err != nil:
			err = skerry.Errorf(skerry.CodeInvalid, "%w", err)
		case r.URL.Path == "/hold":
			err = l.w.Hold(r.Context(), q.Reason)
		case r.URL.Path == "/release":
			err = l.w.Release(r.Context())
		default:
			err = l.w.Approve(r.Context(), q.Instance)
		}
		answer(w, struct{}{}, err)
	case "POST /check":
		answer(w, status{Role: "worker", Name: l.name, Runtimes: l.w.Check(r.Context())}, nil)
	default:
		answer(w, nil, skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s", r.URL.Path))
	}
}
