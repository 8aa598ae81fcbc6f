package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gorilla/websocket"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/wire"
)

// object says of what an operation's scope is asked.
type object string

const (
	objNone      object = "-"             // nothing: everybody, or everybody who is logged in
	objSite      object = "site"          // what belongs to no organisation: needs a grant on all
	objCluster   object = "cluster"       // {cluster}, at the root
	objOrg       object = "organisation"  // {org}
	objNamespace object = "namespace"     // {namespace}
	objApp       object = "application"   // {namespace} and {app}
	objInstance  object = "instance"      // {id}
	objEach      object = "each item"     // a list: the handler gives what the user may see
	objNamed     object = "named in body" // the handler asks, once it has read what it is about
)

// operation is one row of the table of routes. A route that is not in the table does not exist.
type operation struct {
	ID, Method, Path string
	Scope            auth.Scope
	Object           object
	Tag, Summary     string
	Status           int   // of success; 0: 200
	Body             int64 // largest body in bytes; 0: 64 KiB
	Audit            bool  // kept in the audit log when it succeeds; refusals always are
	Stream           bool  // counts against the user's streams
	At               wire.Tier
	Type             string // of the answer, if no value that the handler returns
	Answer           any    // a value of the type that Type, if that is JSON, holds; nil: any object
	Late             bool   // the answer may be an error although its status is that of success
	// Grant is what a site must have given the users of its root for them to reach this there; empty: they never do.
	Grant wire.Grant
	// Repeats: with Audit, what the same user does again and again at the same cluster is kept at growing intervals. It changes nothing.
	Repeats bool
	// Also are statuses beside that of success and those of errors, and what they mean.
	Also map[string]string
}

const defaultBody = 64 << 10

// description says what an operation asks for.
func (o *operation) description() string {
	s := "Scope: " + string(o.Scope) + ", asked of: " + string(o.Object) + "."
	if o.Grant != "" {
		s += " Users of the root need the site's grant " + string(o.Grant) + "."
	}
	return s
}

// add puts an operation whose answer is JSON into the table, the router and the OpenAPI document. fn is called once who is known to be
// allowed, but for the objects each item and named in body. huma.Register is compiled anew for each pair of types, some 30 kB: it gets
// every answer as any, and describe adds its schema to the document.
func add[I, T any](handler *Handler, o operation, fn func(ctx context.Context, who *auth.Principal, in *I) (*answer[T], error)) {
	op := describe(handler, &o, reflect.TypeFor[T]())
	register(handler, op, func(ctx context.Context, who *auth.Principal, in *I) (*answer[any], error) {
		out, err := fn(ctx, who, in)
		if err != nil {
			return nil, err
		}
		return &answer[any]{out.Body}, nil
	})
	listFailures(handler, &o, documented(handler, &o), false)
}

// addBare is add for the other answers: none, a stream, and those that set a cookie.
func addBare[I, O any](handler *Handler, o operation, fn func(ctx context.Context, who *auth.Principal, in *I) (*O, error)) {
	register(handler, describe(handler, &o, nil), fn)
	listFailures(handler, &o, documented(handler, &o), false)
}

// register gives an operation to huma. It is compiled for each pair of types; what is the same for all is in describe.
func register[I, O any](h *Handler, op huma.Operation, fn func(ctx context.Context, who *auth.Principal, in *I) (*O, error)) {
	huma.Register(h.api, op, func(ctx context.Context, in *I) (*O, error) {
		c := callOf(ctx)
		c.arrived(c.w) // what follows is bounded by the deadline of the answer
		out, err := fn(ctx, c.who, in)
		if err != nil {
			return nil, h.problemOf(c, err)
		}
		return out, nil
	})
}

// describe gives huma's description of an operation. body is the type of a JSON answer; nil: huma takes it from what the handler returns.
func describe(handler *Handler, o *operation, body reflect.Type) huma.Operation {
	handler.note(*o)
	op := huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Tags: []string{o.Tag}, DefaultStatus: o.Status,
		MaxBodyBytes: max(o.Body, defaultBody) + 1, BodyReadTimeout: handler.opt.BodyWait, RejectUnknownQueryParameters: true,
		Description: o.description()}
	if op.Security = noLogin(); o.Scope != auth.ScopePublic {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	valued := sync.OnceValue(func() []string { return valuedQueries(documented(handler, o)) }) // Register adds the parameters
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		c := callOf(r.Context())
		c.w = w
		release, err := handler.enter(c, r, o)
		if err != nil {
			handler.fail(w, r, err)
			return
		}
		defer release()
		if name := emptyQuery(r, valued()); name != "" {
			huma.WriteErr(handler.api, ctx, http.StatusUnprocessableEntity, "validation failed",
				&huma.ErrorDetail{Location: "query." + name, Message: "a value is needed; leave the parameter out if you have none"})
			return
		}
		next(ctx)
	}}
	switch op.Responses = (map[string]*huma.Response{}); {
	case o.Type != "":
		op.Responses = responsesOf(handler, o)
	case body != nil:
		schema := handler.api.OpenAPI().Components.Schemas.Schema(body, true, o.ID+"Response")
		op.Responses[strconv.Itoa(cmp.Or(o.Status, http.StatusOK))] = &huma.Response{
			Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
	}
	return op
}

// valuedQueries gives the query parameters of which an empty text is no value: all but lists, and texts that may be empty.
func valuedQueries(op *huma.Operation) (out []string) {
	for _, p := range op.Parameters {
		if s := p.Schema; p.In == "query" && s != nil && s.Type != "array" && (s.Type != "string" || s.Format != "" || s.MinLength != nil) {
			out = append(out, p.Name)
		}
	}
	return out
}

// emptyQuery names a parameter whose value is empty, which huma takes for one that is not given: dryRun= would not be dry.
func emptyQuery(r *http.Request, valued []string) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	query := r.URL.Query()
	for _, name := range valued {
		if slices.Contains(query[name], "") {
			return name
		}
	}
	return ""
}

// noLogin says in the document that an operation needs none; without a word, that would be left open.
func noLogin() []map[string][]string { return []map[string][]string{} }

// documented gives what the OpenAPI document has of an operation.
func documented(h *Handler, o *operation) *huma.Operation {
	item := h.api.OpenAPI().Paths[o.Path]
	return map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
		http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[o.Method]
}

// raw puts a plain handler into the table.
func (h *Handler) raw(o operation, pattern string, fn http.Handler) {
	h.note(o)
	op := &huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, Tags: []string{o.Tag},
		Description: "Scope: " + string(o.Scope) + ", asked of: " + string(o.Object) + ".",
		Responses:   responsesOf(h, &o)}
	if op.Security = noLogin(); o.Scope != auth.ScopePublic {
		op.Security = []map[string][]string{{"bearer": {}}, {"basic": {}}}
	}
	listFailures(h, &o, op, true)
	h.api.OpenAPI().AddOperation(op)
	h.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		release, err := h.enter(c, r, &o)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		defer release()
		fn.ServeHTTP(w, r)
	}))
}

// responsesOf describes the answers of an operation with a Type.
func responsesOf(h *Handler, o *operation) map[string]*huma.Response {
	schemas := h.api.OpenAPI().Components.Schemas
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "")
	schema := &huma.Schema{Type: "string"}
	switch {
	case o.Answer != nil:
		schema = schemas.Schema(reflect.TypeOf(o.Answer), true, o.ID)
	case o.Type == "application/json" || strings.HasSuffix(o.Type, "+json") || strings.HasSuffix(o.Type, "+yaml"):
		schema = &huma.Schema{Type: "object", AdditionalProperties: true}
	}
	if o.Late {
		late := &huma.Schema{Type: "object", Properties: map[string]*huma.Schema{"error": problem}, Required: []string{"error"}}
		schema = &huma.Schema{AnyOf: []*huma.Schema{schema, late}}
	}
	of := func(description, mediaType string, s *huma.Schema) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{mediaType: {Schema: s}}}
	}
	out := map[string]*huma.Response{"200": of("OK", o.Type, schema), "default": of("Error", tier.ProblemType, problem)}
	for status, description := range o.Also {
		out[status] = of(description, o.Type, schema)
	}
	return out
}

// note keeps the operation in the table. One without a scope, an object or a name is a bug of ours.
func (h *Handler) note(o operation) {
	if o.ID == "" || o.Scope == "" || o.Object == "" || h.byID[o.ID] {
		panic("operation " + o.ID + " " + o.Path + " has no scope, no object or no name of its own")
	}
	if (o.Object == objNone) != (o.Scope == auth.ScopePublic || o.Scope == auth.ScopeSelf) {
		panic("operation " + o.ID + " asks a scope of nothing")
	}
	h.byID[o.ID] = true
	if o.Grant != "" {
		h.granted[o.Method+" "+o.Path] = true
	}
	h.operations = append(h.operations, o)
}

// enter finds out who asks and whether they may. release ends what was taken for the time of the request.
func (h *Handler) enter(c *call, r *http.Request, o *operation) (release func(), err error) {
	c.operation, c.audit = o.ID, o.Audit
	c.object = pathObject(r)
	if o.Scope != auth.ScopePublic {
		if !c.root {
			if c.who, err = h.authenticate(r); err != nil {
				return nil, err
			}
		}
		if !h.limits.user(c.who.User) {
			return nil, skerry.Errorf(skerry.CodeRateLimited, "user %s sends too many requests", c.who.User).WithHint("wait a second and try again")
		}
	}
	if o.At != "" && o.At != h.opt.Backend.Tier() {
		return nil, h.wrongTier(o)
	}
	if c.root {
		c.audit = true
		err = checkGrant(h, r.Context(), o)
	} else {
		err = h.authorise(r.Context(), c.who, o, r)
	}
	if err != nil {
		return nil, err
	}
	if o.Repeats || c.root && o.Method == http.MethodGet {
		// Who may see one worker of a site sees all of them: which it was is no news, and a large site has more than the audit.
		c.object = r.PathValue("cluster")
		if c.reads = c.who.User + " " + o.ID + " " + c.object; !h.limits.reads(c.who.User, c.reads) {
			return nil, skerry.Errorf(skerry.CodeRateLimited, "users ask for too many different things to keep all of them in the audit").
				WithHint("wait a minute and try again")
		}
	}
	if !o.Stream {
		return func() {}, nil
	}
	free, err := h.limits.stream(c.who.User)
	if err != nil {
		return nil, err
	}
	stop := h.guard(c, r)
	return func() { stop(); free() }, nil
}

// guard ends a stream when its user's session has ended or its access token was taken back.
func (h *Handler) guard(c *call, r *http.Request) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	c.ctx = ctx
	t := time.NewTicker(h.opt.Heartbeat)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if !h.opt.People.Alive(c.who) {
					cancel()
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

func pathObject(r *http.Request) string {
	var parts []string
	for _, k := range []string{"org", "cluster", "worker", "user", "role", "name", "namespace", "app", "service", "id"} {
		if v := r.PathValue(k); v != "" {
			parts = append(parts, v)
		}
	}
	s := strings.Join(parts, "/")
	if len(s) > 256 {
		s = s[:256]
	}
	return s
}

func (h *Handler) wrongTier(o *operation) error {
	if o.At == wire.TierCluster {
		return skerry.Errorf(skerry.CodeWrongTier, "the root does not know %s; each cluster knows its own", o.Tag).
			WithHint("log in at the cluster (`skerry login --server https://CLUSTER`) or choose its context (`skerry context use NAME`)")
	}
	return skerry.Errorf(skerry.CodeWrongTier, "a cluster does not know other clusters").
		WithHint("log in at the root (`skerry login --server https://ROOT`) or choose its context (`skerry context use NAME`)")
}

// authenticate reads the Authorization header, or what a browser sends in its place with a WebSocket.
func (h *Handler) authenticate(r *http.Request) (*auth.Principal, error) {
	if websocket.IsWebSocketUpgrade(r) && !sameOrigin(r) {
		return nil, skerry.Errorf(skerry.CodeForbidden, "a page from %.200q may not open a WebSocket here",
			r.Header.Get("Origin")).WithHint("open the dashboard at this server's own address")
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if t := webSocketToken(r); t != "" && kind == "" {
		kind, token = "Bearer", t
	}
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "a login is required").
			WithHint("log in with `skerry login`, or send an access token as Authorization: Bearer")
	}
	return h.opt.People.Authenticate(strings.TrimSpace(token))
}

// cluster is the one that objects of this tier belong to: none in particular at the root.
func (h *Handler) cluster() string {
	if h.opt.Backend.Tier() == wire.TierCluster {
		return h.opt.Backend.Name()
	}
	return ""
}

// authorise asks the operation's scope of its object. Where the object's existence would leak, the answer is that there
// is none.
func (h *Handler) authorise(ctx context.Context, who *auth.Principal, o *operation, r *http.Request) error {
	if o.Object == objNone {
		return nil
	}
	if !who.Somewhere(o.Scope) {
		return forbidden(who, o.Scope)
	}
	switch o.Object {
	case objSite:
		if !who.May(o.Scope, "", h.cluster()) {
			return forbidden(who, o.Scope)
		}
	case objCluster:
		if !who.May(o.Scope, "", r.PathValue("cluster")) {
			return forbidden(who, o.Scope)
		}
	case objOrg:
		return h.allow(who, o.Scope, auth.ScopeOrgsRead, r.PathValue("org"), h.cluster(), noOrg(r.PathValue("org")))
	case objNamespace, objApp:
		key := skerry.AppKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("app")}
		org, missing, err := h.orgOf(ctx, key)
		if err != nil {
			return err
		}
		return h.allow(who, o.Scope, auth.ScopeAppsRead, org, h.cluster(), missing)
	case objInstance:
		id := skerry.InstanceID(r.PathValue("id"))
		missing := noInstance(id)
		inst, err := h.opt.Backend.Instance(ctx, id)
		if err != nil {
			if skerry.AsError(err).Code == skerry.CodeNotFound {
				return missing
			}
			return err
		}
		cluster := h.cluster()
		if cluster == "" {
			cluster = string(inst.Cluster)
		}
		org, err := h.orgOfInstance(ctx, &inst)
		if err != nil {
			return err
		}
		return h.allow(who, o.Scope, auth.ScopeAppsRead, org, cluster, missing)
	}
	return nil
}

// allow asks for a scope. Who may not even look is told that there is nothing.
func (h *Handler) allow(who *auth.Principal, s, look auth.Scope, org, cluster string, missing error) error {
	switch {
	case who.May(s, org, cluster):
		return nil
	case who.May(look, org, cluster):
		return forbidden(who, s)
	}
	return missing
}

func forbidden(who *auth.Principal, s auth.Scope) error {
	if len(who.Only) > 0 {
		return skerry.Errorf(skerry.CodeForbidden, "access token %q of user %s has no scope %s for this", who.Token, who.User, s).
			WithHint("create one with that scope, if the user has it")
	}
	return skerry.Errorf(skerry.CodeForbidden, "user %s has no scope %s for this", who.User, s).
		WithHint("ask an admin for a role that has it; `skerry whoami` shows yours")
}

func noOrg(name string) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no organisation %q", name).WithHint("`skerry get orgs` lists them")
}

func noNamespace(name string) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no namespace %q", name).WithHint("`skerry get namespaces` lists them")
}

func noApp(key skerry.AppKey) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no application %s", key).WithHint("`skerry get apps` lists them")
}

func noInstance(id skerry.InstanceID) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no instance %q", id).WithHint("`skerry get instances` lists them")
}

// orgOf finds the organisation of an application, or of a namespace if the name is empty, and the error for those who
// may not see it.
func (h *Handler) orgOf(ctx context.Context, key skerry.AppKey) (org string, missing, err error) {
	missing = noNamespace(key.Namespace)
	if key.Name != "" {
		missing = noApp(key)
		v, err := h.opt.Backend.App(ctx, key, 0)
		if err == nil {
			return v.Org, missing, nil
		}
		if skerry.AsError(err).Code != skerry.CodeNotFound {
			return "", nil, err
		}
	}
	list, err := h.opt.Backend.Namespaces(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, n := range list {
		if n.Name == key.Namespace {
			return n.Org, missing, nil
		}
	}
	return "", missing, nil
}

func (h *Handler) orgOfInstance(ctx context.Context, i *wire.Instance) (string, error) {
	if i.Org != "" {
		return i.Org, nil
	}
	org, _, err := h.orgOf(ctx, i.Service.App)
	return org, err
}
