package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// await waits until something is so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); testenv.Pause(began) {
		if time.Since(began) > time.Minute {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// joined starts a cluster under a root, with an API.
func (s *site) joined(name string) *site {
	t := s.t
	t.Helper()
	token, _, err := s.Root.Authority().CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierCluster})
	must(t, err)
	await(t, "the root listens", func() bool { return s.Root.LinkAddr() != nil })
	at := &site{t: t, Dir: t.TempDir()}
	at.Cluster, err = parents.OpenCluster(t.Context(), parents.ClusterConfig{
		Common: node.Common{Dir: at.Dir, StoreURL: "memory:", Log: logger(t)}, Server: cluster.ServerOptions{Link: "127.0.0.1:0"},
		Join: node.Join{Name: name, Token: token, Parent: []string{s.Root.LinkAddr().String()}}})
	must(t, err)
	t.Cleanup(func() { at.Cluster.Close() })
	background(t, at.Cluster.Run)
	ready := make(chan *parents.API, 1)
	background(t, func(ctx context.Context) error {
		return parents.ServeAPI(ctx, at.Cluster, at.Cluster.Store, parents.APIConfig{Dir: at.Dir, Argon2: quick, Log: logger(t),
			Limits: api.Limits{UserRate: -1, AddressRate: -1}, Listen: api.Listen{Addr: "127.0.0.1:0"}}, func(a *parents.API) { ready <- a })
	})
	at.API = <-ready
	at.URL = at.API.URL()
	await(t, name+" is connected", func() bool { ok, _, _ := at.Cluster.Parent(); return ok })
	return at
}

// member is a child that says what a test has it say.
type member struct {
	*link.Client
	up chan struct{}
}

func (m *member) Up(*link.Peer) {
	select {
	case m.up <- struct{}{}:
	default:
	}
}
func (*member) Frame(*link.Peer, wire.Message) {}
func (*member) Down(*link.Peer, error)         {}

// newMember connects a child; served answers what its parent asks over streams.
func newMember(t *testing.T, authority *auth.Authority, parent string, as wire.Tier, name string, features []string,
	served http.Handler) *member {
	t.Helper()
	token, _, err := authority.CreateToken(t.Context(), auth.TokenOptions{Tier: as})
	must(t, err)
	common := node.Common{Dir: t.TempDir(), Log: logger(t)}
	id, err := common.Member(t.Context(), as, node.Join{Name: name, Token: token, Parent: []string{parent}}, nil, "boot")
	must(t, err)
	m := &member{up: make(chan struct{}, 1)}
	mux := &link.StreamMux{}
	if served != nil {
		streams := link.NewHTTPStreams(served)
		t.Cleanup(func() { streams.Close() })
		mux.Handle(link.StreamHTTP, streams.Serve)
	}
	m.Client, err = link.NewClient(link.ClientConfig{Addrs: func() []string { return []string{parent} }, TLS: id.TLS, Identify: id.Identify,
		Handler: m, Streams: mux, Log: logger(t), Hello: func() *wire.Hello {
			return &wire.Hello{Tier: as, Name: name, Version: "1.0", Boot: "boot", Machine: "m", Features: features}
		}})
	must(t, err)
	background(t, func(ctx context.Context) error { _ = m.Run(ctx); return nil })
	<-m.up
	return m
}

// keeper is a worker with a name and an address that stay at its site.
const (
	keeper        = "keeper-of-the-light"
	keeperAddress = "192.0.2.77"
)

func (s *site) addKeeper() {
	s.t.Helper()
	m := newMember(s.t, s.Cluster.Authority(), s.Cluster.LinkAddr().String(), wire.TierWorker, keeper, nil, nil)
	facts := &wire.WorkerFacts{Arch: "amd64", OS: "linux", Address: keeperAddress}
	facts.Capacity.CPU, facts.Capacity.Memory = 4000, 4<<30
	m.Send(&wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Seq: 1, Facts: facts})})
	await(s.t, "the worker reports", func() bool {
		list, err := s.Cluster.Workers(s.t.Context())
		return err == nil && len(list) == 1 && list[0].Facts != nil
	})
}

// holds says which records of the root's store have a text.
func (s *site) holds(text string) (keys []string) {
	s.t.Helper()
	list, _, err := s.Root.Store.List(s.t.Context(), "")
	must(s.t, err)
	for _, r := range list {
		if strings.Contains(r.Key, text) || bytes.Contains(r.Value, []byte(text)) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// at gives a client of the root for the workers of a cluster.
func (s *site) at(cluster, user, password string) *api.Client {
	s.t.Helper()
	pin, err := api.FetchPin(s.t.Context(), s.URL)
	must(s.t, err)
	c, err := api.NewClient(api.ClientOptions{Server: s.URL, Pin: pin, Cluster: cluster})
	must(s.t, err)
	s.t.Cleanup(c.Close)
	_, err = c.Login(s.t.Context(), user, password)
	must(s.t, err)
	return c
}

func wantCode(t *testing.T, what string, err error, code skerry.Code, parts ...string) {
	t.Helper()
	e := skerry.AsError(err)
	if e == nil || e.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(e.Message+" "+e.Hint, part) {
			t.Errorf("%s: %q is not in %q, hint %q", what, part, e.Message, e.Hint)
		}
	}
}

// TestRootUsersReachIntoSites: what a site has not granted stays there; what it has is answered live, checked and audited at both ends, and
// kept by the root nowhere.
func TestRootUsersReachIntoSites(t *testing.T) {
	s := newRoot(t)
	harbour := s.joined("harbour")
	s.joined("hill")
	harbour.addKeeper()
	ctx := t.Context()
	local, admin := harbour.admin(), s.at("harbour", auth.AdminUser, s.password())

	_, err := admin.Workers(ctx)
	wantCode(t, "without a grant", err, skerry.CodeNotGranted, "cluster harbour", `"workers"`, "skerry cluster grant workers")
	wantCode(t, "cordon without a grant", admin.CordonWorker(ctx, keeper, "storm"), skerry.CodeNotGranted, `"drain"`)
	err = admin.UpgradeWorker(ctx, keeper, view.UpgradeRequest{Image: "a/b:1"})
	wantCode(t, "upgrade without a grant", err, skerry.CodeNotGranted, `"upgrade"`)
	wantCode(t, "a grant that is none", local.SetGrant(ctx, "worker", true), skerry.CodeInvalid, "workers")
	wantCode(t, "a grant at the root", admin.SetGrant(ctx, wire.GrantWorkers, true), skerry.CodeWrongTier)

	must(t, local.SetGrant(ctx, wire.GrantWorkers, true))
	must(t, local.SetGrant(ctx, wire.GrantWorkers, true)) // again: no change
	given, err := local.Grants(ctx)
	if err != nil || len(given) != 1 || given[0].Grant != wire.GrantWorkers || given[0].By != auth.AdminUser || given[0].At.IsZero() {
		t.Fatalf("grants: %+v %v", given, err)
	}
	for range 3 {
		list, err := admin.Workers(ctx)
		if err != nil || len(list) != 1 || list[0].Name != keeper || list[0].Facts == nil || list[0].Facts.Address != keeperAddress {
			t.Fatalf("the workers are %+v, %v", list, err)
		}
	}
	for _, text := range []string{keeper, keeperAddress} {
		keys := s.holds(text)
		if text == keeper { // its user wrote the name, in the requests that were refused
			keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "user/audit/") })
		}
		if len(keys) > 0 {
			t.Errorf("the root holds %s in %v", text, keys)
		}
	}
	if v, err := admin.Worker(ctx, keeper); err != nil || v.Name != keeper {
		t.Errorf("the worker is %+v, %v", v, err)
	}
	_, err = admin.Worker(ctx, "nobody")
	wantCode(t, "a worker that is not there", err, skerry.CodeNotFound, "nobody")
	wantCode(t, "cordon with the grant workers alone", admin.CordonWorker(ctx, keeper, "storm"), skerry.CodeNotGranted, `"drain"`)
	must(t, local.SetGrant(ctx, wire.GrantDrain, true))
	must(t, admin.CordonWorker(ctx, keeper, "storm"))
	if list, err := local.Workers(ctx); err != nil || list[0].Cordon != "storm" {
		t.Errorf("the workers are %+v, %v", list, err)
	}
	must(t, admin.DrainWorker(ctx, keeper, view.DrainRequest{Reason: "new mast"}))
	must(t, admin.CordonWorker(ctx, keeper, ""))

	// The root sees what is granted, and no more of the other site than before.
	await(t, "the root shows the grants", func() bool {
		v, err := admin.Cluster(ctx, "harbour")
		return err == nil && slices.Equal(v.Report.Grants, []wire.Grant{wire.GrantWorkers, wire.GrantDrain}) && !v.Expires.IsZero() &&
			!v.Heard.IsZero()
	})
	_, err = s.at("hill", auth.AdminUser, s.password()).Workers(ctx)
	wantCode(t, "the other site", err, skerry.CodeNotGranted, "cluster hill")
	_, err = s.at("nowhere", auth.AdminUser, s.password()).Workers(ctx)
	wantCode(t, "a site that is not there", err, skerry.CodeNotFound, "nowhere")

	// Users of the root may at a site what they may for all organisations there, and no more.
	_, err = s.admin().CreateOrg(ctx, orgNamed("acme"))
	must(t, err)
	for name, grant := range map[string]auth.Grant{"of-acme": {Role: auth.RoleAdmin, Org: "acme", Cluster: auth.Any},
		"at-hill": {Role: auth.RoleOperator, Org: auth.Any, Cluster: "hill"}, "viewer": {Role: auth.RoleViewer, Org: auth.Any, Cluster: auth.Any},
		"at-harbour": {Role: auth.RoleOperator, Org: auth.Any, Cluster: "harbour"}} {
		_, err := s.admin().CreateUser(ctx, name, "a long password", []auth.Grant{grant})
		must(t, err)
		_, err = s.at("harbour", name, "a long password").Workers(ctx)
		if name == "at-harbour" {
			must(t, err)
			continue
		}
		wantCode(t, name, err, skerry.CodeForbidden)
	}

	// Both ends have who did what; the same reading is there once.
	for who, c := range map[string]*api.Client{"root/": local, "": s.admin()} {
		log, err := c.Audit(ctx, "", "", 1000)
		must(t, err)
		count := map[string]int{}
		for _, r := range log {
			count[r.User+" "+r.Operation+" "+r.Result]++
			if strings.HasPrefix(r.User, "root/") && !strings.HasPrefix(r.Detail, "request ") {
				t.Errorf("a record does not name the root's request: %+v", r)
			}
		}
		list, hold := "list-workers", "hold-worker"
		if who == "" {
			list, hold = "list-cluster-workers", "hold-cluster-worker"
		}
		for what, want := range map[string]int{"admin " + list + " not-granted": 1, "admin " + list + " ok": 1, "at-harbour " + list + " ok": 1,
			"admin " + hold + " not-granted": 2, "admin " + hold + " ok": 2, "of-acme " + list + " ok": 0} {
			if who == "" && strings.HasSuffix(what, list+" not-granted") {
				want = 2 // the other site's
			}
			if got := count[who+what]; got != want {
				t.Errorf("%d records of %q at the end of %q, want %d: %v", got, who+what, who, want, count)
			}
		}
	}

	must(t, local.SetGrant(ctx, wire.GrantWorkers, false))
	_, err = admin.Workers(ctx)
	wantCode(t, "revoked", err, skerry.CodeNotGranted)
	must(t, local.SetGrant(ctx, wire.GrantDrain, false))
	if list, _, err := harbour.Cluster.Store.List(ctx, "grants"); err != nil || len(list) > 0 {
		t.Errorf("a site that grants nothing keeps %v %v", list, err)
	}
}

// TestHostileRoot: a root that asks a site for anything gets what the site's operator granted, whoever it says that its users are.
func TestHostileRoot(t *testing.T) {
	s := newRoot(t)
	harbour := s.joined("harbour")
	harbour.addKeeper()
	ask := func(method, path, user, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://child"+path, strings.NewReader(body))
		must(t, err)
		req.Header.Set(wire.RootUserHeader, user)
		req.Header.Set("Content-Type", "application/json")
		res, err := s.Root.Down().RoundTripper("harbour").RoundTrip(req)
		must(t, err)
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, string(data)
	}
	refused := func(method, path, body string) {
		t.Helper()
		status, text := ask(method, path, "admin", body)
		if status < 400 || strings.Contains(text, keeper) || strings.Contains(text, keeperAddress) {
			t.Errorf("%s %s is answered with %d %s", method, path, status, text)
		}
	}
	everything := func() {
		t.Helper()
		for _, o := range harbour.API.Handler().Operations() {
			if o.Grant == "" && o.Method != "" {
				path := strings.NewReplacer("{worker}", keeper, "{grant}", "drain").Replace(o.Path)
				refused(o.Method, "/site"+path, `{}`)
			}
		}
		for _, path := range []string{"/site", "/site/", "/site/ui/", "/site/v2/", "/site//v1/tokens", "/site/site/v1/workers",
			"/site/../v1/workers", "/v1/workers", "/workers", "/instances/", "/site/v1/workers/../audit", "/site/openapi.json", "/site/healthz",
			"/site/metrics"} {
			refused(http.MethodGet, path, "")
		}
		refused(http.MethodPost, "/site/v1/auth/login", `{"user":"admin","password":"`+harbour.password()+`"}`)
	}
	everything()
	refused(http.MethodGet, "/site/v1/workers", "")
	refused(http.MethodPut, "/site/v1/workers/"+keeper+"/drain", `{}`)
	for _, g := range wire.Grants() {
		must(t, harbour.admin().SetGrant(t.Context(), g, true))
	}
	everything()
	refused(http.MethodDelete, "/site/v1/workers/"+keeper, "")
	if status, text := ask(http.MethodGet, "/site/v1/workers", "ada", ""); status != 200 || !strings.Contains(text, keeper) {
		t.Errorf("a granted list is answered with %d %s", status, text)
	}
	// Names that would pass for somebody of the site, or spoil its log.
	for _, name := range []string{"", strings.Repeat("a", 200), "a\u202eb", "admin"} {
		ask(http.MethodPut, "/site/v1/workers/"+keeper+"/hold", name, `{"reason":"x"}`)
	}
	log, err := harbour.admin().Audit(t.Context(), "root/admin", "unknown", 100)
	if must(t, err); len(log) == 0 || log[0].Result != string(skerry.CodeForbidden) {
		t.Errorf("the audit has of what no site grants %+v", log)
	}
	log, err = harbour.admin().Audit(t.Context(), "", "hold-worker", 100)
	must(t, err)
	for _, r := range log {
		if r.User != "root/?" && r.User != "root/admin" {
			t.Errorf("in the audit of the site it is %q", r.User)
		}
	}
	// It cannot flush the site's audit by reading: what finds no room there is not answered.
	status := 0
	for range 100 { // and now with success, now without
		ask(http.MethodGet, "/site/v1/workers", "ada", "")
		ask(http.MethodGet, "/site/v1/workers?no=such", "ada", "")
	}
	if log, err := harbour.admin().Audit(t.Context(), "root/ada", "list-workers", 5000); err != nil || len(log) != 2 {
		t.Errorf("%d records of the same reading with two outcomes, %v", len(log), err)
	}
	for n := 0; n < 2000 && status != http.StatusTooManyRequests; n++ {
		status, _ = ask(http.MethodHead, "/site/v1/workers", fmt.Sprint("user-", n), "")
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("two thousand users read: %d", status)
	}
	if log, err := harbour.admin().Audit(t.Context(), "", "list-workers", 5000); err != nil || len(log) > 1100 {
		t.Errorf("%d records, %v", len(log), err)
	}
}

// TestHostileSite: a site that answers nonsense, for ever, never, or twice harms its own answers alone. One of an earlier version is named.
func TestHostileSite(t *testing.T) {
	s := newRoot(t)
	await(t, "the root listens", func() bool { return s.Root.LinkAddr() != nil })
	var answer, other atomic.Pointer[http.HandlerFunc]
	serve := func(p *atomic.Pointer[http.HandlerFunc], f http.HandlerFunc) { p.Store(&f) }
	asked := atomic.Int64{}
	serve(&other, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		io.WriteString(w, `{"items":[{"name":"liar"}]}`)
	})
	handler := func(p *atomic.Pointer[http.HandlerFunc]) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*p.Load())(w, r) })
	}
	root := s.Root.LinkAddr().String()
	features := []string{wire.FeatureRootUsers}
	newMember(t, s.Root.Authority(), root, wire.TierCluster, "evil", features, handler(&answer))
	newMember(t, s.Root.Authority(), root, wire.TierCluster, "liar", features, handler(&other))
	newMember(t, s.Root.Authority(), root, wire.TierCluster, "old", nil, http.NotFoundHandler())
	c, ctx := s.at("evil", auth.AdminUser, s.password()), t.Context()

	problem := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status); io.WriteString(w, text) }
	}
	for text, k := range map[string]struct {
		answer http.HandlerFunc
		want   skerry.Code
	}{
		"nonsense":                 {problem(200, "<html>"), skerry.CodeUnavailable},
		"another type":             {problem(200, `{"items":{"a":1}}`), skerry.CodeUnavailable},
		"nothing":                  {problem(200, ""), skerry.CodeUnavailable},
		"deep":                     {problem(200, `{"items":`+strings.Repeat("[", 20000)), skerry.CodeUnavailable},
		"an error without a text":  {problem(500, ""), skerry.CodeUnavailable},
		"a bug of its own":         {problem(500, `{"code":"internal","detail":"panic"}`), skerry.CodeUnavailable},
		"a code that nobody knows": {problem(400, `{"code":"haha","detail":"x"}`), skerry.CodeUnavailable},
		"that the login is over":   {problem(401, `{"code":"unauthorized","detail":"log in"}`), skerry.CodeForbidden},
		"that too much was asked":  {problem(429, `{"code":"rate-limited","detail":"x"}`), skerry.CodeUnavailable},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, skerry.CodeUnavailable},
		"a part": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"items":[`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, skerry.CodeUnavailable},
		"no end": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"items":[`)
			for _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err == nil; _, err = io.WriteString(w, strings.Repeat(" ", 1<<20)) {
			}
		}, skerry.CodeTooLarge},
	} {
		serve(&answer, k.answer)
		_, err := c.Workers(ctx)
		wantCode(t, text, err, k.want, "evil")
	}

	// Whatever it answers, the root's audit has each change that it was asked for.
	for _, refusal := range []http.HandlerFunc{problem(429, `{"code":"rate-limited","detail":"x"}`), problem(503, "")} {
		serve(&answer, refusal)
		before, err := s.admin().Audit(ctx, "", "hold-cluster-worker", 1000)
		must(t, err)
		for range 40 {
			wantCode(t, "cordon", c.CordonWorker(ctx, "w1", "storm"), skerry.CodeUnavailable)
		}
		if after, err := s.admin().Audit(ctx, "", "hold-cluster-worker", 1000); err != nil || len(after)-len(before) != 40 {
			t.Errorf("the audit has %d of 40 changes, %v", len(after)-len(before), err)
		}
	}
	serve(&answer, problem(422, `{"code":"invalid","detail":"a\u001b[2Jb`+strings.Repeat("x", 5000)+`","hint":"\u202e",
		"problems":[`+strings.Repeat(`{"path":"\u001b","message":"\n"},`, 500)+`{}]}`))
	_, err := c.Workers(ctx)
	if e := skerry.AsError(err); strings.ContainsFunc(e.Message+e.Hint, unicode.IsControl) ||
		strings.Contains(e.Hint, "\u202e") || len(e.Message) > 2000 || len(e.Problems) > 20 ||
		strings.ContainsFunc(e.Problems[0].Path+e.Problems[0].Message, unicode.IsControl) {
		t.Errorf("the error is %.200q %q with %d problems", e.Message, e.Hint, len(e.Problems))
	}

	// It never answers; the other site does meanwhile.
	gone := make(chan struct{})
	serve(&answer, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) })
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err = s.Root.AskSite(short, "evil", view.SiteRequest{User: "ada", Method: http.MethodGet, Path: "/v1/workers"}, nil)
	wantCode(t, "no answer", err, skerry.CodeUnavailable, "evil")
	<-gone
	if list, err := s.at("liar", auth.AdminUser, s.password()).Workers(ctx); err != nil || len(list) != 1 {
		t.Errorf("the workers are %+v, %v", list, err)
	}
	if asked.Load() != 1 {
		t.Errorf("the other site was asked %d times", asked.Load())
	}

	// It answers twice: the second answer is nobody's.
	serve(&answer, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("unexpected: %v", err)
			return
		}
		defer conn.Close()
		for _, name := range []string{"first", "again"} {
			body := `{"items":[{"name":"` + name + `"}]}`
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	for range 3 {
		if list, err := c.Workers(ctx); err != nil || len(list) != 1 || list[0].Name != "first" {
			t.Errorf("the workers are %+v, %v", list, err)
		}
	}

	_, err = s.at("old", auth.AdminUser, s.password()).Workers(ctx)
	wantCode(t, "an earlier version", err, skerry.CodeUnsupported, "old", "version 1.0", "upgrade")
}
