package api

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Options set up a Handler. Backend and People are needed.
type Options struct {
	Backend Backend
	People  *auth.People
	OIDC    *auth.OIDC // logins at an identity provider; nil: none
	Version string
	Limits  Limits
	// OpenMetrics serves /metrics to everybody; otherwise it needs the scope metrics:read.
	OpenMetrics bool
	// Heartbeat is how often a silent watch says that it lives; default 15 s.
	Heartbeat time.Duration
	// BodyWait is how long the body of a request may take to arrive; default 30 s, because links of sites are slow.
	BodyWait time.Duration
	Log      *slog.Logger
}

// Handler is the REST interface. It serves HTTP; Server adds the listener.
type Handler struct {
	opt        Options
	api        huma.API
	mux        *http.ServeMux
	limits     *limits
	meter      *meter
	operations []operation
	byID       map[string]bool
	granted    map[string]bool // patterns of operations that users of the root may reach, if the site has granted that
	document   func() *huma.OpenAPI
	spec       func() []byte // openapi.json
	specYAML   func() []byte
}

// maxOther bounds the body of a request to a route that does not name a limit.
const maxOther = 1 << 20

// NewHandler makes the REST interface of a backend.
func NewHandler(opt Options) (*Handler, error) {
	if opt.Backend == nil || opt.People == nil {
		return nil, errors.New("api: a backend and people are needed")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Heartbeat == 0 {
		opt.Heartbeat = 15 * time.Second
	}
	if opt.BodyWait == 0 {
		opt.BodyWait = 30 * time.Second
	}
	handler := &Handler{opt: opt, mux: http.NewServeMux(), limits: newLimits(opt.Limits), meter: newMeter(), byID: map[string]bool{},
		granted: map[string]bool{}}
	registry := huma.NewMapRegistry(schemasPrefix, schemaName)
	aliasTypes(registry)
	handler.api = humago.New(handler.mux, huma.Config{
		OpenAPI:                      emptyDocument(registry),
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true, Transformers: []huma.Transformer{handler.translate},
	})
	handler.addAuth()
	handler.addTOTP()
	addOIDC(handler)
	handler.addUsers()
	handler.addOrgs()
	handler.addCertificates()
	handler.addSecrets()
	handler.addVolumes()
	addSnapshots(handler)
	addPackages(handler)
	handler.addOrphans()
	handler.addApps()
	handler.addInstances()
	handler.addEvents()
	handler.addSite()
	handler.addSystem()
	handler.addDashboard()
	handler.mux.HandleFunc("/", handler.unknown)
	// Most processes are never asked for the document, and writing it takes a fifth of what their start computes.
	problem := registry.Schema(reflect.TypeFor[Problem](), true, "")
	handler.document = sync.OnceValue(func() *huma.OpenAPI { return wholeDocument(handler.api.OpenAPI(), problem) })
	handler.spec = sync.OnceValue(func() []byte { return written(json.MarshalIndent(handler.document(), "", "  ")) })
	handler.specYAML = sync.OnceValue(func() []byte { return written(handler.document().YAML()) })
	return handler, nil
}

// written gives the document, which depends on nothing that is known only when the program runs.
func written(doc []byte, err error) []byte {
	if err != nil {
		panic("api: write the OpenAPI document: " + err.Error())
	}
	return doc
}

// OpenAPI gives the document that describes the interface, as JSON.
func (h *Handler) OpenAPI() []byte { return h.spec() }

// schemaName names a type in the document. Types of different packages that have one name are told apart here.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[skerry.Problem]() {
		return "FieldProblem"
	}
	name := huma.DefaultSchemaNamer(t, hint)
	if strings.HasPrefix(t.Name(), "Page[") { // it is what lists without pages have, and one field
		name = "List" + strings.TrimPrefix(name, "Page")
	}
	return name
}

// aliasTypes tells huma how types of the root package are written.
func aliasTypes(r huma.Registry) {
	for from, to := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[skerry.Bytes]():     reflect.TypeFor[bytesText](),
		reflect.TypeFor[skerry.MilliCPU]():  reflect.TypeFor[coresText](),
		reflect.TypeFor[spec.Duration]():    reflect.TypeFor[durationText](),
		reflect.TypeFor[spec.Application](): reflect.TypeFor[manifestText](),
		reflect.TypeFor[wire.OverlayKey]():  reflect.TypeFor[keyNumbers](),
		reflect.TypeFor[huma.ErrorModel]():  reflect.TypeFor[Problem](),
	} {
		r.RegisterTypeAlias(from, to)
	}
}

type (
	bytesText    struct{}
	coresText    struct{}
	durationText struct{}
	manifestText struct{}
	keyNumbers   struct{}
)

func (bytesText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Type: "string"}, {Type: "number"}},
		Description: "Bytes: a number, or a string such as 64Mi or 2G. Responses use the string."}
}

func (coresText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Type: "number"}, {Type: "string"}},
		Description: "Cores: a number such as 0.5, or a string such as 500m. Responses use the number."}
}

func (durationText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Description: "A duration such as 30s or 5m."}
}

func (manifestText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Ref: schemasPrefix + manifestSchema}
}

func (keyNumbers) Schema(huma.Registry) *huma.Schema {
	size, least, most := 32, 0.0, 255.0
	return &huma.Schema{Type: "array", MinItems: &size, MaxItems: &size,
		Items:       &huma.Schema{Type: "integer", Minimum: &least, Maximum: &most},
		Description: "A public key, as the numbers of its bytes."}
}

// call is what is known of a request while it is answered.
type call struct {
	id        string
	who       *auth.Principal
	operation string
	object    string
	detail    string // for the audit: what was done to the object
	audit     bool
	reads     string // what it reads, of which the audit needs no second record; empty: it has each
	guess     bool   // it came with a password
	secure    bool   // browsers come over TLS, here or to a proxy
	foreign   bool   // a page of another origin sent it
	sent      bool   // a cluster was asked to change something, and may have done so whatever is known of its answer
	root      bool   // a user of the root, who is known already, sent it by way of the root
	code      skerry.Code
	w         http.ResponseWriter
	body      *body           // nil for a request without one
	ctx       context.Context // of a stream: it ends with the user's session
}

// body is that of a request. It knows whether all of it has arrived.
type body struct {
	io.ReadCloser
	whole bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// arrived ends the deadline for the body, which would end a long answer too, once there is nothing more to come.
func (c *call) arrived(w http.ResponseWriter) {
	if c.body == nil || c.body.whole {
		http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// requestIDs is the alphabet of request ids: easy to read out.
var requestIDs = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func newRequestID() string {
	var b [10]byte
	rand.Read(b[:])
	return requestIDs.EncodeToString(b[:])
}

// hsts has browsers ask this host by HTTPS alone for 30 days: not for longer, nor for names below, since a device's other services may have
// the same name.
const hsts = "max-age=2592000"

// ServeHTTP bounds, answers, counts and logs a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(h, w, r, &call{secure: r.TLS != nil || h.opt.OIDC.TLS(), foreign: foreignOrigin(r)})
}

// serve answers a request of which something is known already.
func serve(handler *Handler, w http.ResponseWriter, r *http.Request, call *call) {
	begin := time.Now()
	call.id, call.operation = newRequestID(), "unknown"
	r = r.WithContext(context.WithValue(context.WithValue(r.Context(), callKey{}, call), addressKey{}, address(r)))
	r = r.WithContext(context.WithValue(r.Context(), hostKey{}, r.Host))
	rec := &recorder{ResponseWriter: w}
	head := w.Header()
	head.Set("X-Request-Id", call.id)
	head.Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil {
		head.Set("Strict-Transport-Security", hsts)
	}
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Cache-Control", "no-store")
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			handler.opt.Log.Error("panic", "request", call.id, "operation", call.operation, "err", p, "stack", string(debug.Stack()))
			if rec.status == 0 {
				handler.fail(rec, r, skerry.Errorf(skerry.CodeInternal, "panic"))
			}
		}
		handler.done(call, r, rec.status, time.Since(begin))
	}()
	if r.ContentLength != 0 {
		// Also for what nobody reads: the server waits for it before it answers.
		http.NewResponseController(w).SetReadDeadline(begin.Add(handler.opt.BodyWait))
		call.body = &body{ReadCloser: r.Body}
		r.Body = call.body
	}
	if !handler.limits.addr(address(r)) {
		handler.fail(rec, r, skerry.Errorf(skerry.CodeRateLimited, "too many requests from %s", address(r)).
			WithHint("wait a second and try again"))
		return
	}
	if !isUpload(r) {
		if r.ContentLength > spec.MaxManifest+maxOther {
			rec.Header().Set("Connection", "close") // the rest is not read
			handler.fail(rec, r, skerry.Errorf(skerry.CodeTooLarge, "the body has %d bytes; at most %d are accepted", r.ContentLength,
				spec.MaxManifest).
				WithHint("put large files into an image"))
			return
		}
		r.Body = http.MaxBytesReader(rec, r.Body, spec.MaxManifest+maxOther)
	}
	if call.root && !reaches(handler, r) {
		handler.fail(rec, r, skerry.Errorf(skerry.CodeForbidden, "no site lets users of its root do that").
			WithHint("log in at the cluster (`skerry login --server https://CLUSTER`)"))
		return
	}
	handler.mux.ServeHTTP(rec, r)
}

// unknown answers what is not in the table.
func (h *Handler) unknown(w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := h.mux.Handler(probe); pattern != "" && pattern != "/" {
			allow = append(allow, m)
		}
	}
	if len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		h.failStatus(w, r, http.StatusMethodNotAllowed, skerry.Errorf(skerry.CodeInvalid, "method %.16q is not allowed here", r.Method).
			WithHint("allowed: %s", strings.Join(allow, ", ")))
		return
	}
	h.fail(w, r, skerry.Errorf(skerry.CodeNotFound, "there is nothing at %.200q",
		r.URL.Path).WithHint("the API is described at /openapi.json"))
}

// done counts, logs and audits a request.
func (h *Handler) done(c *call, r *http.Request, status int, took time.Duration) {
	if status == 0 {
		status = http.StatusOK
	}
	h.meter.request(c.operation, status, took, c.ctx != nil)
	user, token := "", ""
	if c.who != nil {
		user, token = c.who.User, c.who.Token
	}
	h.opt.Log.Debug("request", "request", c.id, "user", user, "addr", address(r), "operation", c.operation, "object", c.object, "status",
		status, "took", took)
	if !h.audited(c, address(r)) {
		return
	}
	result := "ok"
	if c.code != "" {
		result = string(c.code)
	} else if status >= 400 {
		result = http.StatusText(status)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	h.opt.People.Audit(ctx, auth.AuditRecord{User: user, Token: token, Address: address(r), Operation: c.operation, Object: c.object,
		Detail: cut(c.detail, maxDetail), Result: result, Request: c.id})
}

// audited reports whether a request comes into the audit: what changed something, and of what did not as much as leaves room for that.
func (h *Handler) audited(c *call, addr string) bool {
	switch {
	case c.reads != "" && c.audit && !h.limits.read(c.reads, c.code):
		return false
	case c.code == "":
		return c.audit
	case c.sent && c.code == skerry.CodeUnavailable:
		return true
	case c.code == skerry.CodeUnauthorized:
		return c.guess && h.limits.failure(addr) // without a login nobody changes anything
	case c.code == skerry.CodeRateLimited || !c.audit && c.code != skerry.CodeForbidden && c.code != skerry.CodeNotGranted:
		return false
	}
	if c.who == nil {
		return h.limits.failure(addr)
	}
	return h.limits.failure(c.who.User)
}

// maxDetail bounds what the audit keeps of a request, in bytes.
const maxDetail = 1024

// cut shortens a text to so many bytes, at the end of a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush lets streams flow.
func (r *recorder) Flush() { http.NewResponseController(r.ResponseWriter).Flush() }
