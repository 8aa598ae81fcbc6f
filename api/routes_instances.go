package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gorilla/websocket"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// InstancePath names an instance.
type InstancePath struct {
	ID string `path:"id" maxLength:"128"`
}

// stream is an answer that is written by the worker.
type stream struct {
	Body func(huma.Context)
}

// pass hands a request on to the worker of an instance. The query has been checked.
func (h *Handler) pass(id, rest string) *stream {
	return &stream{func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		c := callOf(r.Context())
		c.arrived(w) // streams live as long as both ends want
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
		if c.ctx != nil {
			r = r.WithContext(c.ctx)
		}
		if websocket.IsWebSocketUpgrade(r) {
			w, r = asStream(w, r)
		}
		h.opt.Backend.ServeInstance(w, r, skerry.InstanceID(id), rest)
	}}
}

// passUpgraded is pass for a connection that becomes one of another protocol. Whoever asks for none of that is told so here: the worker,
// which would refuse it, knows nothing of how the API tells errors.
func passUpgraded(h *Handler, id, rest, proto string) *stream {
	to := h.pass(id, rest)
	return &stream{func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		if r.Header.Get("Upgrade") != proto && !websocket.IsWebSocketUpgrade(r) {
			h.fail(w, r, skerry.Errorf(skerry.CodeInvalid, "this connection was not to be upgraded").
				WithHint("send the headers Connection: Upgrade and Upgrade: %s", proto))
			return
		}
		to.Body(ctx)
	}}
}

// instancePage gives the page of instances that a user may see. The core is asked for no more than it takes to fill it.
func instancePage(ctx context.Context, handler *Handler, part apps.InstancePage, token string, see *seer) (*pageAnswer[wire.Instance],
	error) {
	const list = "/v1/instances"
	if token != "" {
		after, err := readPageToken(list, token)
		if err != nil {
			return nil, err
		}
		part.After = skerry.InstanceID(after)
	}
	limit, page := part.Limit, make([]wire.Instance, 0, min(part.Limit, pageSize))
	for {
		got, more, err := handler.opt.Backend.InstancePage(ctx, part)
		if err != nil {
			return nil, err
		}
		for at := range got {
			if see.instance(&got[at]) {
				page = append(page, got[at])
			}
			if len(page) == limit && (more || at < len(got)-1) {
				return &pageAnswer[wire.Instance]{Page[wire.Instance]{page, pageToken(list, string(got[at].ID))}}, nil
			}
		}
		if !more || len(got) == 0 {
			return &pageAnswer[wire.Instance]{Page[wire.Instance]{Items: page}}, nil
		}
		part.After, part.Limit = got[len(got)-1].ID, max(limit, pageSize) // what a user may not see costs few questions
	}
}

func (h *Handler) addInstances() {
	type listIn struct {
		PageIn
		Namespace string `query:"namespace" maxLength:"63"`
		App       string `query:"app" maxLength:"63"`
		Service   string `query:"service" maxLength:"63"`
	}
	add(h, operation{ID: "list-instances", Method: http.MethodGet, Path: "/v1/instances",
		Scope: auth.ScopeAppsRead, Object: objEach, Tag: "instances",
		Summary: "List the instances."},
		func(ctx context.Context, who *auth.Principal, in *listIn) (*pageAnswer[wire.Instance], error) {
			see := h.seer(ctx, who, auth.ScopeAppsRead)
			if in.Limit > 0 {
				return instancePage(ctx, h, apps.InstancePage{Limit: in.Limit, Namespace: in.Namespace, App: in.App, Service: in.Service},
					in.Continue, see)
			}
			list, err := h.opt.Backend.Instances(ctx)
			return pageSeen("/v1/instances", in.PageIn, list, err, func(i *wire.Instance) bool {
				k := i.Service
				return (in.Namespace == "" || in.Namespace == k.App.Namespace) && (in.App == "" || in.App == k.App.Name) &&
					(in.Service == "" || in.Service == k.Service) && see.instance(i)
			}, func(i *wire.Instance) string { return string(i.ID) })
		})
	add(h, operation{ID: "get-instance", Method: http.MethodGet, Path: "/v1/instances/{id}",
		Scope: auth.ScopeAppsRead, Object: objInstance, Tag: "instances",
		Summary: "Show an instance."},
		func(ctx context.Context, _ *auth.Principal, in *InstancePath) (*answer[wire.Instance], error) {
			inst, err := h.opt.Backend.Instance(ctx, skerry.InstanceID(in.ID))
			return &answer[wire.Instance]{inst}, err
		})
	type deleteIn struct {
		InstancePath
		Scale bool `query:"scale" doc:"Lower the number of its service's replicas by one instead of placing a new instance."`
	}
	addBare(h, operation{ID: "delete-instance", Method: http.MethodDelete, Path: "/v1/instances/{id}", Scope: auth.ScopeAppsWrite,
		Object: objInstance, Tag: "instances",
		Summary: "End an instance. Its service then places a new one. To end an instance that no application owns, use end-orphan.",
		Status:  http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *deleteIn) (*none, error) {
			_, err := h.opt.Backend.Do(ctx, apps.DeleteInstance{ID: skerry.InstanceID(in.ID), Scale: in.Scale, Actor: who.User})
			return nil, err
		})
	type migrateIn struct {
		InstancePath
		Body view.MigrateRequest
	}
	add(h, operation{ID: "migrate-instance", Method: http.MethodPost, Path: "/v1/instances/{id}/migrate", Scope: auth.ScopeAppsWrite,
		Object: objInstance, Tag: "instances",
		Summary: "Move an instance to another worker, or from the root to another cluster: a copy starts there and replaces the " +
			"instance once it is ready. Naming a worker requires the scope workers:read, naming a cluster clusters:read.",
		Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *migrateIn) (*answer[view.Migrating], error) {
			if to := in.Body.To; to != "" {
				scope, cluster := auth.ScopeWorkersRead, h.cluster()
				if h.opt.Backend.Tier() == wire.TierRoot {
					scope, cluster = auth.ScopeClustersRead, to
				}
				if !who.May(scope, "", cluster) {
					return nil, forbidden(who, scope)
				}
			}
			m, err := h.opt.Backend.Migrate(ctx, skerry.InstanceID(in.ID), in.Body, who.User)
			return &answer[view.Migrating]{m}, err
		})
	add(h, operation{ID: "explain-instance", Method: http.MethodGet, Path: "/v1/instances/{id}/explain", Scope: auth.ScopeAppsRead,
		Object: objInstance, Tag: "instances", Summary: "Explain why an instance was placed where it is, or why it could not be placed."},
		func(ctx context.Context, _ *auth.Principal, in *InstancePath) (*answer[view.Explanation], error) {
			e, err := h.opt.Backend.Explain(ctx, skerry.InstanceID(in.ID))
			if err == nil {
				e.Classes, err = h.opt.Backend.Classes(ctx, skerry.InstanceID(in.ID))
			}
			return &answer[view.Explanation]{e}, err
		})
	type logsIn struct {
		InstancePath
		Container string    `query:"container" maxLength:"63" doc:"Container of the instance. Default: main."`
		Follow    bool      `query:"follow" doc:"Keep streaming new lines."`
		Previous  bool      `query:"previous" doc:"Read the log of the run before the last restart."`
		Since     time.Time `query:"since" doc:"Return only lines after this time (RFC 3339)."`
		Tail      int       `query:"tail" minimum:"0" maximum:"1000000" doc:"Return only this many lines, the newest."`
	}
	addBare(h, operation{ID: "read-logs", Method: http.MethodGet, Path: "/v1/instances/{id}/logs", Scope: auth.ScopeAppsLogs,
		Object: objInstance, Tag: "instances",
		Summary: "Read the log as one JSON object per line, with time, stream and line.", Stream: true, Type: "application/x-ndjson"},
		func(ctx context.Context, _ *auth.Principal, in *logsIn) (*stream, error) {
			return h.pass(in.ID, "/logs"), nil
		})
	type execIn struct {
		InstancePath
		Command   []string `query:"command,explode" minItems:"1" maxItems:"1000" doc:"Program and arguments."`
		Container string   `query:"container" maxLength:"63"`
		User      string   `query:"user" maxLength:"100"`
		TTY       bool     `query:"tty"`
		Stdin     bool     `query:"stdin"`
		Env       []string `query:"env,explode" maxItems:"1000"`
	}
	exec := func(ctx context.Context, _ *auth.Principal, in *execIn) (*stream, error) {
		callOf(ctx).detail = execDetail(in.Container, in.User, in.Command)
		return passUpgraded(h, in.ID, "/exec", execstream.ProtoExec), nil
	}
	op := operation{ID: "exec", Method: http.MethodGet, Path: "/v1/instances/{id}/exec", Scope: auth.ScopeAppsExec, Object: objInstance,
		Tag: "instances",
		Summary: "Run a command inside an instance over an upgraded connection (Upgrade: skerry-exec/1), or over a WebSocket whose " +
			"binary messages carry the same bytes (protocols skerry-exec.1 and bearer.TOKEN).",
		Stream: true, Audit: true, Type: "application/octet-stream", Also: upgraded()}
	addBare(h, op, exec)
	type forwardIn struct {
		InstancePath
		Port int `query:"port" required:"true" minimum:"1" maximum:"65535"`
	}
	addBare(h, operation{ID: "port-forward", Method: http.MethodGet, Path: "/v1/instances/{id}/portforward", Scope: auth.ScopeAppsForward,
		Object: objInstance, Tag: "instances", Summary: "Forward the connection to a port of an instance (Upgrade: skerry-tcp/1).",
		Stream: true, Audit: true, Type: "application/octet-stream", Also: upgraded()},
		func(ctx context.Context, _ *auth.Principal, in *forwardIn) (*stream, error) {
			callOf(ctx).detail = "port " + strconv.Itoa(in.Port)
			return passUpgraded(h, in.ID, "/portforward", execstream.ProtoForward), nil
		})
	addBare(h, operation{ID: "instance-stats", Method: http.MethodGet, Path: "/v1/instances/{id}/stats", Scope: auth.ScopeAppsRead,
		Object: objInstance, Tag: "instances",
		Summary: "Return the resource counters of each container in an instance.", Type: "application/json", Answer: []ContainerStats{}},
		func(ctx context.Context, _ *auth.Principal, in *InstancePath) (*stream, error) {
			return h.pass(in.ID, "/stats"), nil
		})
	addBare(h, operation{ID: "instance-metrics", Method: http.MethodGet, Path: "/v1/instances/{id}/metrics", Scope: auth.ScopeMetricsRead,
		Object: objInstance, Tag: "metrics", Summary: "Scrape the metrics of an instance.", Type: "text/plain"},
		func(ctx context.Context, _ *auth.Principal, in *InstancePath) (*stream, error) {
			return h.pass(in.ID, "/metrics"), nil
		})
}

// upgraded describes what answers a connection that becomes another protocol's.
func upgraded() map[string]string {
	return map[string]string{"101": "The connection speaks the protocol that was asked for."}
}

// execDetail tells the audit what is run, quoted as a shell would need it.
func execDetail(container, user string, command []string) string {
	var words []string
	if container != "" {
		words = append(words, "in "+container+":")
	}
	if user != "" {
		words = append(words, "as "+user+":")
	}
	for _, w := range command {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\$`|&;<>()*?[]#~", r) }) {
			w = strconv.Quote(w)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// seer decides quickly about many objects.
type seer struct {
	h     *Handler
	ctx   context.Context
	who   *auth.Principal
	scope auth.Scope
	orgs  map[skerry.AppKey]string
}

func (h *Handler) seer(ctx context.Context, who *auth.Principal, s auth.Scope) *seer {
	return &seer{h: h, ctx: ctx, who: who, scope: s, orgs: map[skerry.AppKey]string{}}
}

func (s *seer) instance(i *wire.Instance) bool {
	cluster := s.h.cluster()
	if cluster == "" {
		cluster = string(i.Cluster)
	}
	org := i.Org
	if org == "" {
		org = s.org(i.Service.App)
	}
	return s.who.May(s.scope, org, cluster)
}

func (s *seer) org(key skerry.AppKey) string {
	org, ok := s.orgs[key]
	if !ok {
		org, _, _ = s.h.orgOf(s.ctx, key)
		s.orgs[key] = org
	}
	return org
}

// event decides about an event: of an application's organisation, or of the site.
func (s *seer) event(e *wire.Event) bool {
	org := e.Org
	if org == "" && e.App.Name != "" {
		org = s.org(e.App)
	}
	cluster := s.h.cluster()
	if cluster == "" {
		cluster = string(e.Cluster)
	}
	return s.who.May(s.scope, org, cluster)
}
