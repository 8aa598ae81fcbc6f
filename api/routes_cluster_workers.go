package api

import (
	"context"
	"net/http"
	"net/url"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// atSite makes a request of a user of the root for a cluster's API.
func atSite(ctx context.Context, who *auth.Principal, method, path string, body any) view.SiteRequest {
	c := callOf(ctx)
	return view.SiteRequest{User: who.User, Request: c.id, Method: method, Path: path, Body: body,
		Sent: func() { c.sent = method != http.MethodGet }}
}

// addClusterWorkers adds, at the root, what a cluster's own users do with its workers, as far as the cluster grants it. The root asks the
// cluster for each answer and keeps none.
func addClusterWorkers(handler *Handler) {
	type ClusterPath struct {
		Cluster string `path:"cluster" maxLength:"63"`
	}
	type WorkerPath struct {
		ClusterPath
		Worker string `path:"worker" maxLength:"63"`
	}
	const workers = "/v1/clusters/{cluster}/workers"
	path := func(in WorkerPath, what string) string { return "/v1/workers/" + url.PathEscape(in.Worker) + what }
	read := operation{Method: http.MethodGet, Scope: auth.ScopeWorkersRead, Object: objCluster, Tag: "clusters",
		At: wire.TierRoot, Audit: true, Repeats: true}
	write := operation{Method: http.MethodPut, Scope: auth.ScopeWorkersWrite, Object: objCluster, Tag: "clusters",
		At: wire.TierRoot, Audit: true}
	of := func(o operation, id, path, summary string, status int) operation {
		o.ID, o.Path, o.Summary, o.Status = id, path, summary, status
		return o
	}
	add(handler, of(read, "list-cluster-workers", workers, "List the workers of a cluster that grants workers to the users of the root.", 0),
		func(ctx context.Context, who *auth.Principal, in *ClusterPath) (*pageAnswer[view.WorkerView], error) {
			var list Page[view.WorkerView]
			err := handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodGet, "/v1/workers", nil), &list)
			if err != nil {
				return nil, err
			}
			return pageOf("/v1/workers", PageIn{}, list.Items, func(w *view.WorkerView) string { return string(w.Name) })
		})
	add(handler, of(read, "get-cluster-worker", workers+"/{worker}",
		"Show a worker of a cluster that grants workers to the users of the root.", 0),
		func(ctx context.Context, who *auth.Principal, in *WorkerPath) (*answer[view.WorkerView], error) {
			var v view.WorkerView
			err := handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodGet, path(*in, ""), nil), &v)
			return &answer[view.WorkerView]{v}, err
		})
	add(handler, of(read, "cluster-worker-overlay", workers+"/{worker}/overlay",
		"Return a worker's overlay paths to other workers, at a cluster that grants workers to the users of the root.", 0),
		func(ctx context.Context, who *auth.Principal, in *WorkerPath) (*answer[view.OverlayView], error) {
			var v view.OverlayView
			err := handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodGet, path(*in, "/overlay"), nil), &v)
			return &answer[view.OverlayView]{v}, err
		})
	type drainIn struct {
		WorkerPath
		Body view.DrainRequest
	}
	addBare(handler, of(write, "drain-cluster-worker", workers+"/{worker}/drain",
		"Drain a worker of a cluster that grants drain to the users of the root.", http.StatusAccepted),
		func(ctx context.Context, who *auth.Principal, in *drainIn) (*none, error) {
			return nil, handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodPut, path(in.WorkerPath, "/drain"), in.Body), nil)
		})
	type upgradeIn struct {
		WorkerPath
		Body view.UpgradeRequest
	}
	addBare(handler, of(write, "upgrade-cluster-worker", workers+"/{worker}/upgrade",
		"Upgrade a worker's agent at a cluster that grants upgrade to the users of the root.", http.StatusAccepted),
		func(ctx context.Context, who *auth.Principal, in *upgradeIn) (*none, error) {
			return nil, handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodPut, path(in.WorkerPath, "/upgrade"), in.Body), nil)
		})
	type holdIn struct {
		WorkerPath
		Body holdRequest
	}
	addBare(handler, of(write, "hold-cluster-worker", workers+"/{worker}/hold",
		"Cordon or uncordon a worker of a cluster that grants drain to the users of the root.", http.StatusNoContent),
		func(ctx context.Context, who *auth.Principal, in *holdIn) (*none, error) {
			return nil, handler.opt.Backend.AskSite(ctx, in.Cluster, atSite(ctx, who, http.MethodPut, path(in.WorkerPath, "/hold"), in.Body), nil)
		})
}
