package api

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Snapshotter is what the Backend of a cluster can do beside: snapshots lie on its workers, of which a root knows nothing.
type Snapshotter interface {
	Snapshots(ctx context.Context) ([]spec.Snapshot, error)
	TakeSnapshot(ctx context.Context, v spec.VolumeClaim, r spec.SnapshotRequest, actor string) (spec.Snapshot, error)
	// ImportSnapshot keeps a stream of OpenSnapshot, on a worker or, without its name, on any. A length below 1 is not known.
	ImportSnapshot(ctx context.Context, v spec.VolumeClaim, org, worker, actor string, from io.Reader, length int64) (spec.Snapshot, error)
	OpenSnapshot(ctx context.Context, id spec.SnapshotID) (from io.ReadCloser, length int64, err error)
	// RestoreSnapshot makes volumes what a snapshot has; clone: they must not be there yet.
	RestoreSnapshot(ctx context.Context, id spec.SnapshotID, to spec.VolumeClaim, clone bool, worker, actor string) (view.VolumeView, error)
	DeleteSnapshot(ctx context.Context, id spec.SnapshotID, actor string) error
}

// SnapshotPath names a snapshot.
type SnapshotPath struct {
	Snapshot string `path:"snapshot" maxLength:"120"`
}

// snapshotsOf gives what can be done with snapshots here.
func snapshotsOf(h *Handler) (Snapshotter, error) {
	s, ok := h.opt.Backend.(Snapshotter)
	if !ok {
		return nil, skerry.Errorf(skerry.CodeUnsupported, "this server has no snapshots").WithHint("ask a cluster")
	}
	return s, nil
}

// findSnapshot finds a snapshot for somebody who may do something with it, and with another's tells nothing of it.
func findSnapshot(ctx context.Context, h *Handler, who *auth.Principal, scope auth.Scope, id string) (Snapshotter, *spec.Snapshot, error) {
	s, err := snapshotsOf(h)
	if err != nil {
		return nil, nil, err
	}
	missing := skerry.Errorf(skerry.CodeNotFound, "there is no snapshot %.100q", id).WithHint("`skerry volume snapshots` lists them")
	list, err := s.Snapshots(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		if string(list[i].ID) == id {
			callOf(ctx).object = id
			return s, &list[i], h.allow(who, scope, auth.ScopeAppsRead, list[i].Org, h.cluster(), missing)
		}
	}
	return nil, nil, missing
}

// later answers with what takes long.
func later(do func(ctx context.Context) (any, error)) *stream {
	return &stream{func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		tier.Later(w, r, do)
	}}
}

func addSnapshots(handler *Handler) {
	const tag = "snapshots"
	type listIn struct {
		Namespace string `query:"namespace" maxLength:"63" doc:"Return only snapshots in this namespace."`
	}
	add(handler, operation{ID: "list-snapshots", Method: http.MethodGet, Path: "/v1/snapshots", Scope: auth.ScopeAppsRead, Object: objEach,
		Tag: tag, At: wire.TierCluster, Summary: "List the snapshots of local volumes."},
		func(ctx context.Context, who *auth.Principal, in *listIn) (*listAnswer[spec.Snapshot], error) {
			s, err := snapshotsOf(handler)
			if err != nil {
				return nil, err
			}
			list, err := s.Snapshots(ctx)
			return seen(list, err, func(v *spec.Snapshot) bool {
				return (in.Namespace == "" || v.Namespace == in.Namespace) && who.May(auth.ScopeAppsRead, v.Org, handler.cluster())
			})
		})
	type takeIn struct {
		ServicePath
		Replica  int    `path:"replica" minimum:"0"`
		MaxPause string `query:"maxPause" minLength:"1" maxLength:"20" doc:"How long writers may be paused. Default: 20s."`
	}
	addBare(handler, operation{ID: "take-snapshot", Method: http.MethodPost,
		Path:  "/v1/volumes/{namespace}/{app}/{service}/{replica}/snapshots",
		Scope: auth.ScopeAppsWrite, Object: objNamespace, Tag: tag, At: wire.TierCluster, Audit: true,
		Type: "application/json", Answer: spec.Snapshot{}, Late: true,
		Summary: "Take a consistent snapshot of a replica's local volumes. The response is a Snapshot. If it takes long, white space is sent first, and an error is reported in the member error."},
		func(_ context.Context, who *auth.Principal, in *takeIn) (*stream, error) {
			s, err := snapshotsOf(handler)
			if err != nil {
				return nil, err
			}
			var q spec.SnapshotRequest
			if in.MaxPause != "" {
				d, err := time.ParseDuration(in.MaxPause)
				if err != nil || d <= 0 || d > maxPause {
					return nil, skerry.Errorf(skerry.CodeInvalid, "maxPause %q is not a duration of at most %s", in.MaxPause, maxPause).
						WithHint("write 30s, for example")
				}
				q.MaxPause = spec.Duration(d)
			}
			v := spec.VolumeClaim{Service: in.service(), Ordinal: in.Replica}
			return later(func(ctx context.Context) (any, error) { return s.TakeSnapshot(ctx, v, q, who.User) }), nil
		})
	addBare(handler, operation{ID: "delete-snapshot", Method: http.MethodDelete, Path: "/v1/snapshots/{snapshot}", Scope: auth.ScopeAppsWrite,
		Object: objNamed, Tag: tag, At: wire.TierCluster, Summary: "Delete a snapshot.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *SnapshotPath) (*none, error) {
			s, v, err := findSnapshot(ctx, handler, who, auth.ScopeAppsWrite, in.Snapshot)
			if err == nil {
				err = s.DeleteSnapshot(ctx, v.ID, who.User)
			}
			return nil, err
		})
	type restoreIn struct {
		SnapshotPath
		Body spec.RestoreRequest
	}
	addBare(handler, operation{ID: "restore-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{snapshot}/restore",
		Scope: auth.ScopeAppsWrite, Object: objNamed, Tag: tag, At: wire.TierCluster, Audit: true,
		Type: "application/json", Answer: view.VolumeView{}, Late: true,
		Summary: "Restore a snapshot into the local volumes it was taken from, or into new volumes. An instance that uses them is stopped and started again. Naming a worker requires the scope workers:read. The response is a VolumeView, streamed like that of take-snapshot."},
		func(ctx context.Context, who *auth.Principal, in *restoreIn) (*stream, error) {
			s, v, err := findSnapshot(ctx, handler, who, auth.ScopeAppsWrite, in.Snapshot)
			if err != nil {
				return nil, err
			}
			to, worker := v.Claim(), string(in.Body.Worker)
			if in.Body.To != "" {
				if to, err = spec.ParseVolumeName(v.Namespace, in.Body.To); err != nil {
					return nil, err
				}
			}
			if worker != "" && !who.May(auth.ScopeWorkersRead, "", handler.cluster()) {
				return nil, forbidden(who, auth.ScopeWorkersRead)
			}
			clone := in.Body.To != ""
			return later(func(ctx context.Context) (any, error) {
				return s.RestoreSnapshot(ctx, v.ID, to, clone, worker, who.User)
			}), nil
		})
	addSnapshotFiles(handler, tag)
}

// maxPause bounds how long somebody may have writers stand still.
const maxPause = time.Hour

func addSnapshotFiles(handler *Handler, tag string) {
	addBare(handler, operation{ID: "export-snapshot", Method: http.MethodGet, Path: "/v1/snapshots/{snapshot}/content",
		Scope: auth.ScopeAppsExec, Object: objNamed, Tag: tag, At: wire.TierCluster,
		Summary: "Download a snapshot as a tar archive compressed with zstd.", Stream: true, Audit: true, Type: "application/zstd"},
		func(ctx context.Context, who *auth.Principal, in *SnapshotPath) (*stream, error) {
			s, v, err := findSnapshot(ctx, handler, who, auth.ScopeAppsExec, in.Snapshot)
			if err != nil {
				return nil, err
			}
			return &stream{func(ctx huma.Context) {
				r, w := humago.Unwrap(ctx)
				c := callOf(r.Context())
				from, length, err := s.OpenSnapshot(c.ctx, v.ID)
				if err != nil {
					handler.fail(w, r, err)
					return
				}
				defer from.Close()
				_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
				w.Header().Set("Content-Type", "application/zstd")
				w.Header().Set("Content-Length", strconv.FormatInt(length, 10)) // what breaks off is not taken for whole
				_, _ = io.Copy(w, from)
			}}, nil
		})
	type importIn struct {
		ServicePath
		Replica int    `path:"replica" minimum:"0"`
		Worker  string `query:"worker" maxLength:"63" doc:"Worker that stores the snapshot. Default: the one with the most free space. Naming one requires the scope workers:read."`
	}
	op := operation{ID: "import-snapshot", Method: http.MethodPut, Path: "/v1/volumes/{namespace}/{app}/{service}/{replica}/snapshots",
		Scope: auth.ScopeAppsWrite, Object: objNamespace, Tag: tag, At: wire.TierCluster, Stream: true, Audit: true,
		Type: "application/json", Answer: spec.Snapshot{}, Late: true,
		Summary: "Import a snapshot that export-snapshot returned. The response is a Snapshot, streamed like that of take-snapshot."}
	addBare(handler, op, func(ctx context.Context, who *auth.Principal, in *importIn) (*stream, error) {
		s, err := snapshotsOf(handler)
		if err != nil {
			return nil, err
		}
		if in.Worker != "" && !who.May(auth.ScopeWorkersRead, "", handler.cluster()) {
			return nil, forbidden(who, auth.ScopeWorkersRead)
		}
		org, missing, err := handler.orgOf(ctx, skerry.AppKey{Namespace: in.Namespace})
		if err == nil && org == "" {
			err = missing // it would be nobody's
		}
		if err != nil {
			return nil, err
		}
		v := spec.VolumeClaim{Service: in.service(), Ordinal: in.Replica}
		return &stream{func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // volumes are large and sites are far
			tier.Later(w, r, func(context.Context) (any, error) {
				return s.ImportSnapshot(callOf(r.Context()).ctx, v, org, in.Worker, who.User, r.Body, r.ContentLength)
			})
		}}, nil
	})
	handler.api.OpenAPI().Paths[op.Path].Put.RequestBody = &huma.RequestBody{Required: true,
		Content: map[string]*huma.MediaType{"application/zstd": {Schema: &huma.Schema{Type: "string"}}}}
}

// isUpload reports whether the body of a request is as large as a volume or an image. What reads it bounds it.
func isUpload(r *http.Request) bool {
	return r.URL.Path == "/v2" || strings.HasPrefix(r.URL.Path, "/v2/") ||
		r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/volumes/")
}
