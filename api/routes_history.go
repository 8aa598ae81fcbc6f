package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// HistoryIn says how much of a history is asked for.
type HistoryIn struct {
	Hours int `query:"hours" minimum:"1" maximum:"24" default:"24" doc:"How far back to go."`
	Step  int `query:"step" minimum:"1" maximum:"60" default:"10" doc:"Minutes from one point to the next."`
}

func (in *HistoryIn) query() view.HistoryQuery {
	return view.HistoryQuery{Span: time.Duration(in.Hours) * time.Hour, Step: time.Duration(in.Step) * time.Minute}
}

// fineStep is the smallest step, in minutes, in which the history of all workers is given: more points would be too large an answer.
const fineStep = 10

// addHistory adds what a site and its workers used. No grant gives that to users of the root.
func addHistory(handler *Handler) {
	backend := handler.opt.Backend
	row := func(id, path, summary string) operation {
		return operation{ID: id, Method: http.MethodGet, Path: path, Scope: auth.ScopeWorkersRead, Object: objSite, Tag: "workers",
			At: wire.TierCluster, Summary: summary}
	}
	type siteIn struct {
		HistoryIn
		Workers bool `query:"workers" doc:"Add the history of each worker. step must be 10 or more."`
	}
	add(handler, row("get-history", "/v1/history", "Show what the site used in the last day, and each of its workers."),
		func(ctx context.Context, _ *auth.Principal, in *siteIn) (*answer[view.History], error) {
			q := in.query()
			if q.Workers = in.Workers; q.Workers && in.Step < fineStep {
				return nil, skerry.Errorf(skerry.CodeInvalid, "with workers, step is at least %d", fineStep).
					WithHint("ask for one worker at /v1/workers/NAME/history, or for a larger step")
			}
			h, err := backend.History(ctx, q)
			return &answer[view.History]{h}, err
		})
	type workerIn struct {
		HistoryIn
		Worker string `path:"worker" maxLength:"63"`
	}
	add(handler, row("get-worker-history", "/v1/workers/{worker}/history", "Show what a worker used in the last day."),
		func(ctx context.Context, _ *auth.Principal, in *workerIn) (*answer[view.History], error) {
			q := in.query()
			q.Worker = in.Worker
			h, err := backend.History(ctx, q)
			return &answer[view.History]{h}, err
		})
}

// History shows what a site used, or one of its workers. Only a cluster knows.
func (c *Client) History(ctx context.Context, q view.HistoryQuery) (view.History, error) {
	v := url.Values{"hours": {strconv.Itoa(int(q.Span / time.Hour))}, "step": {strconv.Itoa(int(q.Step / time.Minute))}}
	if q.Worker != "" {
		return get[view.History](ctx, c, "/v1/workers/"+esc(q.Worker)+"/history", v)
	}
	if q.Workers {
		v.Set("workers", "true")
	}
	return get[view.History](ctx, c, "/v1/history", v)
}
