package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Kinds of what a watch tells.
const (
	WatchApp      = "app"
	WatchInstance = "instance"
	WatchEvent    = "event"
)

// Types of watch messages.
const (
	WatchSet     = "set"     // what it looks like now
	WatchDeleted = "deleted" // it is no more
	WatchSynced  = "synced"  // everything there is has been told; what comes are changes
	WatchMissed  = "missed"  // some changes were missed: everything is told again, up to the next synced
	WatchBeat    = "beat"    // nothing happened; the connection lives
)

// WatchMessage is one line of a watch. App, Instance and Event are set by kind; a deleted thing has its key only.
type WatchMessage struct {
	Type     string            `json:"type"`
	Kind     string            `json:"kind,omitempty"`
	Key      *skerry.AppKey    `json:"key,omitempty"`
	ID       skerry.InstanceID `json:"id,omitempty"`
	App      *view.AppView     `json:"app,omitempty"`
	Instance *wire.Instance    `json:"instance,omitempty"`
	Event    *wire.Event       `json:"event,omitempty"`
}

type watchIn struct {
	Namespace string `query:"namespace" maxLength:"63"`
	App       string `query:"app" maxLength:"63"`
	Kinds     string `query:"kinds" maxLength:"60" doc:"Comma-separated list of app, instance and event. Default: all."`
	Accept    string `header:"Accept" maxLength:"500" hidden:"true"` // the document has both types of content
	Encoding  string `header:"Accept-Encoding" maxLength:"500" hidden:"true"`
}

// watchOptions are a checked watchIn.
type watchOptions struct {
	namespace, app string
	kinds          []string
	sse, gzip      bool
}

func parseWatch(in *watchIn) (o watchOptions, err error) {
	o = watchOptions{namespace: in.Namespace, app: in.App, sse: strings.Contains(in.Accept, "text/event-stream"),
		gzip: acceptsGzip(in.Encoding)}
	if in.Kinds == "" {
		o.kinds = []string{WatchApp, WatchInstance, WatchEvent}
		return o, nil
	}
	for _, k := range strings.Split(in.Kinds, ",") {
		if !slices.Contains([]string{WatchApp, WatchInstance, WatchEvent}, k) {
			return o, &skerry.Error{Code: skerry.CodeInvalid, Message: "the request is not valid", Problems: []skerry.Problem{{Path: "query.kinds",
				Message: fmt.Sprintf("%q cannot be watched", k), Hint: "use app, instance, event, separated by commas"}}}
		}
		o.kinds = append(o.kinds, k)
	}
	return o, nil
}

func (o *watchOptions) wants(kind string) bool { return slices.Contains(o.kinds, kind) }

func (o *watchOptions) matches(k skerry.AppKey) bool {
	return (o.namespace == "" || k.Namespace == o.namespace) && (o.app == "" || k.Name == o.app)
}

func (h *Handler) addEvents() {
	type listIn struct {
		Namespace string `query:"namespace" maxLength:"63"`
		App       string `query:"app" maxLength:"63"`
		Instance  string `query:"instance" maxLength:"128"`
		Limit     int    `query:"limit" minimum:"1" maximum:"10000" default:"200" doc:"Return at most this many events, the newest."`
		Continue  string `query:"continue" doc:"Return the events before those of an earlier answer, which had this token."`
	}
	add(h, operation{ID: "list-events", Method: http.MethodGet, Path: "/v1/events", Scope: auth.ScopeEventsRead, Object: objEach,
		Tag: "events", Summary: "List events, oldest first."},
		func(ctx context.Context, who *auth.Principal, in *listIn) (*pageAnswer[wire.Event], error) {
			see := h.seer(ctx, who, auth.ScopeEventsRead)
			all := h.opt.Backend.Journal().List(0, func(e *wire.Event) bool {
				return (in.Namespace == "" || e.App.Namespace == in.Namespace) && (in.App == "" || e.App.Name == in.App) &&
					(in.Instance == "" || string(e.Instance) == in.Instance)
			})
			all = slices.DeleteFunc(all, func(e wire.Event) bool { return !see.event(&e) })
			return pageBack("/v1/events", in.Limit, in.Continue, all, func(e *wire.Event) uint64 { return e.Seq })
		})
	addBare(h, operation{ID: "watch", Method: http.MethodGet, Path: "/v1/watch", Scope: auth.ScopeAppsRead, Object: objEach, Tag: "events",
		Summary: "Stream the current state and then each change, as one JSON object per line or as server-sent events. Events " +
			"require events:read.", Stream: true, Type: "application/x-ndjson"},
		func(ctx context.Context, who *auth.Principal, in *watchIn) (*stream, error) {
			o, err := parseWatch(in)
			if err != nil {
				return nil, err
			}
			return &stream{func(hc huma.Context) {
				r, w := humago.Unwrap(hc)
				h.watch(w, r, who, o)
			}}, nil
		})
	document := h.api.OpenAPI().Paths["/v1/watch"].Get.Responses["200"].Content
	document["text/event-stream"] = document["application/x-ndjson"]
}

// watcher is one watch. Only its own goroutine touches it.
type watcher struct {
	h    *Handler
	ctx  context.Context
	o    watchOptions
	who  *auth.Principal
	apps *seer
	evs  *seer
	w    io.Writer
	ctl  *http.ResponseController
	zip  *zipped // what w compresses with; nil: it does not
	// told is what the client knows of, so that it hears only of the end of those.
	toldApps map[skerry.AppKey]bool
	toldInst map[skerry.InstanceID]bool
}

// writeWait is how long a reader may be stuck before its watch ends; it may begin another.
const writeWait = 30 * time.Second

func (h *Handler) watch(w http.ResponseWriter, r *http.Request, who *auth.Principal, o watchOptions) {
	call := callOf(r.Context())
	call.arrived(w)
	ctx := call.ctx
	x := &watcher{h: h, ctx: ctx, o: o, who: who, w: w, ctl: http.NewResponseController(w), toldApps: map[skerry.AppKey]bool{},
		toldInst: map[skerry.InstanceID]bool{}}
	sub := h.opt.Backend.Journal().Subscribe() // before listing, so that nothing falls between
	defer sub.Close()
	if o.sse {
		w.Header().Set("Content-Type", "text/event-stream")
	} else {
		w.Header().Set("Content-Type", "application/x-ndjson")
	}
	w.Header().Set("X-Accel-Buffering", "no")
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	if o.gzip {
		w.Header().Set("Content-Encoding", "gzip")
		x.zip = newZipped(w)
		x.w = x.zip.in
		defer x.zip.close()
	}
	if x.list() != nil {
		return
	}
	beat := time.NewTicker(h.opt.Heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			err = x.send(WatchMessage{Type: WatchBeat})
		case n := <-sub.C:
			batch := []journal.Notice{n}
			for len(batch) < 256 && len(sub.C) > 0 {
				batch = append(batch, <-sub.C)
			}
			err = x.notices(batch)
		}
		if err == nil {
			err = x.flush()
		}
		if err != nil {
			return
		}
	}
}

func (x *watcher) list() error {
	// Each listing sees the organisations anew.
	x.apps, x.evs = x.h.seer(x.ctx, x.who, auth.ScopeAppsRead), x.h.seer(x.ctx, x.who, auth.ScopeEventsRead)
	oldApps, oldInst := x.toldApps, x.toldInst
	x.toldApps, x.toldInst = map[skerry.AppKey]bool{}, map[skerry.InstanceID]bool{}
	if x.o.wants(WatchApp) {
		may := func(org string) bool { return x.who.May(auth.ScopeAppsRead, org, x.h.cluster()) }
		list, _, err := x.h.opt.Backend.AppPage(x.ctx, apps.AppPage{Namespace: x.o.namespace, May: may})
		if err != nil {
			return err
		}
		for i := range list {
			if err := x.app(&list[i]); err != nil {
				return err
			}
		}
	}
	if x.o.wants(WatchInstance) {
		if err := x.instances(); err != nil {
			return err
		}
	}
	for k := range oldApps {
		if !x.toldApps[k] {
			x.toldApps[k] = true
			if err := x.appGone(k); err != nil {
				return err
			}
		}
	}
	for id := range oldInst {
		if !x.toldInst[id] {
			x.toldInst[id] = true
			if err := x.instanceGone(id); err != nil {
				return err
			}
		}
	}
	if err := x.send(WatchMessage{Type: WatchSynced}); err != nil {
		return err
	}
	return x.flush()
}

// watchPage is how many instances are listed at a time: a reader that is slow has the others wait, and not in memory.
const watchPage = 5000

func (x *watcher) instances() error {
	page := apps.InstancePage{Limit: watchPage, Namespace: x.o.namespace, App: x.o.app}
	for {
		list, more, err := x.h.opt.Backend.InstancePage(x.ctx, page)
		if err != nil {
			return err
		}
		for i := range list {
			if err := x.instance(&list[i]); err != nil {
				return err
			}
		}
		if !more || len(list) == 0 {
			return nil
		}
		page.After = list[len(list)-1].ID
	}
}

// flush sends what was told so far.
func (x *watcher) flush() error {
	if x.zip != nil {
		if err := x.zip.in.Flush(); err != nil {
			return err
		}
	}
	return x.ctl.Flush()
}

func (x *watcher) app(v *view.AppView) error {
	if !x.o.matches(v.Key) || !x.who.May(auth.ScopeAppsRead, v.Org, x.h.cluster()) {
		return nil
	}
	x.toldApps[v.Key] = true
	return x.send(WatchMessage{Type: WatchSet, Kind: WatchApp, App: v})
}

func (x *watcher) instance(i *wire.Instance) error {
	if !x.o.matches(i.Service.App) || !x.apps.instance(i) {
		return nil
	}
	x.toldInst[i.ID] = true
	return x.send(WatchMessage{Type: WatchSet, Kind: WatchInstance, Instance: i})
}

func (x *watcher) appGone(k skerry.AppKey) error {
	if !x.toldApps[k] {
		return nil
	}
	delete(x.toldApps, k)
	return x.send(WatchMessage{Type: WatchDeleted, Kind: WatchApp, Key: &k})
}

func (x *watcher) instanceGone(id skerry.InstanceID) error {
	if !x.toldInst[id] {
		return nil
	}
	delete(x.toldInst, id)
	return x.send(WatchMessage{Type: WatchDeleted, Kind: WatchInstance, ID: id})
}

// notices tells what a batch of notices means; what changed several times is told once.
func (x *watcher) notices(batch []journal.Notice) error {
	for _, n := range batch {
		if n.Missed {
			if err := x.send(WatchMessage{Type: WatchMissed}); err != nil {
				return err
			}
			return x.list()
		}
	}
	seenApp, seenInst := map[skerry.AppKey]bool{}, map[skerry.InstanceID]bool{}
	for _, n := range batch {
		var err error
		switch {
		case n.Event != nil && x.o.wants(WatchEvent):
			if x.o.matches(n.Event.App) && x.evs.event(n.Event) {
				err = x.send(WatchMessage{Type: WatchSet, Kind: WatchEvent, Event: n.Event})
			}
		case n.Change != nil:
			err = x.change(n.Change, seenApp, seenInst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// concerns reports whether a change may be one that the reader is told. Each watch is told of the changes of all.
func (x *watcher) concerns(c *wire.Change) bool {
	return (c.App.Name == "" || x.o.matches(c.App)) && (c.Org == "" || x.who.MayOf(auth.ScopeAppsRead, c.Org))
}

func (x *watcher) change(c *wire.Change, seenApp map[skerry.AppKey]bool, seenInst map[skerry.InstanceID]bool) error {
	if !x.concerns(c) {
		return nil
	}
	if c.Instance != "" && x.o.wants(WatchInstance) && !seenInst[c.Instance] {
		seenInst[c.Instance] = true
		inst, err := x.h.opt.Backend.Instance(x.ctx, c.Instance)
		switch {
		case err == nil:
			err = x.instance(&inst)
		case skerry.AsError(err).Code == skerry.CodeNotFound:
			err = x.instanceGone(c.Instance)
		}
		if err != nil {
			return err
		}
	}
	// An application's numbers change with its instances.
	if c.App.Name == "" || !x.o.wants(WatchApp) || seenApp[c.App] {
		return nil
	}
	seenApp[c.App] = true
	v, err := x.h.opt.Backend.App(x.ctx, c.App, 0)
	switch {
	case err == nil:
		v.Manifest = nil
		return x.app(&v)
	case skerry.AsError(err).Code == skerry.CodeNotFound:
		return x.appGone(c.App)
	}
	return err
}

func (x *watcher) send(m WatchMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	x.ctl.SetWriteDeadline(time.Now().Add(writeWait))
	if x.o.sse {
		_, err = fmt.Fprintf(x.w, "event: %s\ndata: %s\n\n", m.Type, data)
	} else {
		_, err = x.w.Write(append(data, '\n'))
	}
	return err
}
