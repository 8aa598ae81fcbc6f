package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/parents"
)

// follow starts a watch and gives its messages.
func follow(t *testing.T, c *api.Client, f api.WatchFilter) <-chan api.WatchMessage {
	t.Helper()
	out := make(chan api.WatchMessage, 1000)
	background(t, func(ctx context.Context) error {
		if err := c.Watch(ctx, f, func(m api.WatchMessage) error { out <- m; return nil }); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	return out
}

// until reads messages up to one that is right.
func until(t *testing.T, ch <-chan api.WatchMessage, what string, ok func(api.WatchMessage) bool) (seen []api.WatchMessage) {
	t.Helper()
	patience := time.After(30 * time.Second)
	for {
		select {
		case m := <-ch:
			seen = append(seen, m)
			if ok(m) {
				return seen
			}
		case <-patience:
			t.Fatalf("waited in vain: %s; seen %+v", what, seen)
		}
	}
}

func isType(typ string) func(api.WatchMessage) bool {
	return func(m api.WatchMessage) bool { return m.Type == typ }
}

func TestWatchTellsChangesAndResumes(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	ctx := t.Context()
	listen := api.Listen{Addr: "127.0.0.1:0"}
	first, err := api.NewServer(s.API.Handler(), listen)
	must(t, err)
	must(t, first.Open())
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- first.Run(run) }()
	wc, err := api.NewClient(api.ClientOptions{Server: first.URL(), Pin: s.Root.Authority().CAPin()})
	must(t, err)
	t.Cleanup(wc.Close)
	_, err = wc.Login(ctx, auth.AdminUser, s.password())
	must(t, err)
	ch := follow(t, wc, api.WatchFilter{})
	until(t, ch, "synced", isType(api.WatchSynced))

	res, err := c.Apply(ctx, []byte(shop), api.ApplyOptions{})
	must(t, err)
	until(t, ch, "the application", func(m api.WatchMessage) bool { return m.App != nil && m.App.Key == res.Key && m.App.Manifest == nil })
	inst, err := c.Instances(ctx, api.InstanceFilter{})
	must(t, err)
	until(t, ch, "a change of the instance's decision or nothing", func(m api.WatchMessage) bool { return m.Type == api.WatchSet })
	_, err = c.Scale(ctx, skerry.ServiceKey{App: res.Key, Service: "web"}, 0)
	must(t, err)
	seen := until(t, ch, "the end of the instance", func(m api.WatchMessage) bool {
		return m.Type == api.WatchDeleted && m.ID == inst[0].ID || m.Instance != nil && m.Instance.State.Final()
	})
	if !slices.ContainsFunc(seen, func(m api.WatchMessage) bool { return m.Event != nil && m.Event.Reason == "Scaled" }) {
		t.Errorf("no event among %+v", seen)
	}

	// The server goes and comes back at the same address, and meanwhile the application is deleted.
	addr := first.Addr().String()
	stop()
	must(t, <-ended)
	must(t, c.DeleteApp(ctx, res.Key))
	second, err := api.NewServer(s.API.Handler(), api.Listen{Addr: addr})
	must(t, err)
	must(t, second.Open())
	background(t, second.Run)
	until(t, ch, "missed", isType(api.WatchMissed))
	for _, m := range until(t, ch, "synced again", isType(api.WatchSynced)) {
		if m.App != nil && !m.App.Deleting {
			t.Errorf("told of %+v", m.App)
		}
	}
	_, err = c.Apply(ctx, []byte(strings.Replace(shop, "shop", "other", 1)), api.ApplyOptions{})
	must(t, err)
	until(t, ch, "what comes after", func(m api.WatchMessage) bool { return m.App != nil && m.App.Key.Name == "other" })
}

// handlerOf makes another handler for the same root with a short heartbeat.
func (s *site) quickBeats() *site {
	h, err := api.NewHandler(api.Options{Backend: s.Root, People: s.API.People, Heartbeat: 20 * time.Millisecond, Limits: api.Limits{UserRate: -1, AddressRate: -1}})
	must(s.t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0"})
	must(s.t, err)
	must(s.t, srv.Open())
	background(s.t, srv.Run)
	return &site{t: s.t, Dir: s.Dir, Root: s.Root, API: &parents.API{Server: srv, People: s.API.People}, URL: srv.URL()}
}

func TestWatchBeatsAndEndsWithTheSession(t *testing.T) {
	s := newRoot(t).quickBeats()
	tk, err := s.API.People.Login(t.Context(), auth.Credentials{User: auth.AdminUser, Password: s.password()})
	must(t, err)
	for name, accept := range map[string]string{"ndjson": "application/x-ndjson", "sse": "text/event-stream"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/watch?kinds=app", nil)
		r.Header.Set("Authorization", "Bearer "+tk.Access)
		r.Header.Set("Accept", accept)
		res, err := s.http().Do(r)
		must(t, err)
		defer res.Body.Close()
		if !strings.HasPrefix(res.Header.Get("Content-Type"), accept) {
			t.Errorf("%s: %s", name, res.Header.Get("Content-Type"))
		}
		sc := bufio.NewScanner(res.Body)
		beats := 0
		for beats < 3 && sc.Scan() {
			line := strings.TrimPrefix(sc.Text(), "data: ")
			var m api.WatchMessage
			if json.Unmarshal([]byte(line), &m) == nil && m.Type == api.WatchBeat {
				beats++
			}
		}
		if beats < 3 {
			t.Errorf("%s: %d beats, %v", name, beats, sc.Err())
		}
		if name == "sse" {
			continue
		}
		who, err := s.API.People.Authenticate(tk.Access)
		must(t, err)
		must(t, s.API.People.Logout(t.Context(), who))
		for sc.Scan() { // ends when the server has noticed
		}
		tk, err = s.API.People.Login(t.Context(), auth.Credentials{User: auth.AdminUser, Password: s.password()})
		must(t, err)
	}
}

// TestClientRefreshes lets the access token expire before its time by taking it for expired.
func TestClientRefreshes(t *testing.T) {
	s := newRoot(t)
	first := s.admin()
	var kept tokenFile
	c, err := api.NewClient(api.ClientOptions{Server: s.URL, Pin: s.Root.Authority().CAPin(), Tokens: &kept})
	must(t, err)
	t.Cleanup(c.Close)
	if _, err := c.Apps(t.Context(), ""); skerry.AsError(err).Code != skerry.CodeUnauthorized {
		t.Error(err)
	}
	tk, err := c.Login(t.Context(), auth.AdminUser, s.password())
	must(t, err)
	kept.tokens.Expires = time.Now() // the next command finds it expired
	next, err := api.NewClient(api.ClientOptions{Server: s.URL, Pin: s.Root.Authority().CAPin(), Tokens: &kept})
	must(t, err)
	t.Cleanup(next.Close)
	_, err = next.Apps(t.Context(), "")
	must(t, err)
	if kept.tokens.Refresh == tk.Refresh || kept.saves != 2 {
		t.Errorf("%+v", kept)
	}
	must(t, next.Logout(t.Context()))
	if kept.tokens.Access != "" {
		t.Error("the tokens were not forgotten")
	}
	if _, err := next.Apps(t.Context(), ""); skerry.AsError(err).Code != skerry.CodeUnauthorized || !strings.Contains(skerry.AsError(err).Hint, "login") {
		t.Error(err)
	}
	_, err = first.Apps(t.Context(), "") // the other session is another
	must(t, err)
	list, err := first.Audit(t.Context(), "", "", 0)
	must(t, err)
	ops := map[string]int{}
	for _, r := range list {
		ops[r.Operation+" "+r.Result]++
	}
	if ops["login ok"] != 2 || ops["logout ok"] != 1 {
		t.Errorf("audit: %v", ops)
	}
}

// tokenFile keeps tokens as a context file does.
type tokenFile struct {
	tokens auth.Tokens
	saves  int
}

func (f *tokenFile) Load() (auth.Tokens, error) { return f.tokens, nil }
func (f *tokenFile) Save(t auth.Tokens) error {
	f.tokens = t
	f.saves++
	return nil
}

func TestMetricsAreText(t *testing.T) {
	s := newRoot(t)
	c := s.admin()
	_, err := c.Apps(t.Context(), "")
	must(t, err)
	text, err := c.Metrics(t.Context())
	must(t, err)
	for _, want := range []string{`skerry_api_requests_total{operation="list-apps",status="200"} 1`, `skerry_api_request_duration_seconds_bucket{operation="list-apps",le="+Inf"} 1`,
		`skerry_instances{state="Running"} 0`, `skerry_applications{status="Ready"} 0`, "skerry_ready 1", "process_cpu_seconds_total", "go_memstats_"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if !strings.HasPrefix(line, "#") && len(strings.Fields(line)) < 2 {
			t.Errorf("line %d: %q", i, line)
		}
	}
	if res, _ := s.raw("GET", "/metrics", "", "", nil); res.StatusCode != 401 {
		t.Error(res.Status)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/schema/application.json", "/v1/version"} {
		if res, data := s.raw("GET", path, "", "", nil); res.StatusCode != 200 || len(data) == 0 {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
