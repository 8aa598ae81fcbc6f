package oakestra_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/api/oakestra"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// world is a root without a site, and Oakestra's API in front of it.
type world struct {
	t     testing.TB
	API   *parents.API
	root  *parents.Root
	front http.Handler
	token string // of whoever logged in last
	out   bytes.Buffer
}

const (
	password = "an oak by the sea"
	registry = "127.0.0.1:1"
)

// newWorld has a developer of the organisation default, named ann, and one of another, named eve.
func newWorld(t testing.TB, opt oakestra.Options) *world {
	t.Helper()
	dir := t.TempDir()
	// Images are at a registry that does not answer, so that sites would look for them.
	silent := &artifact.Source{PlainHTTP: []string{registry}, Guard: &artifact.Guard{Listed: []string{registry}}}
	r, err := parents.OpenRoot(t.Context(), parents.RootConfig{Common: node.Common{Dir: dir, StoreURL: "memory:"},
		Server: root.ServerOptions{Link: "127.0.0.1:0"}, ImageConfig: parents.ImageConfig{Registry: silent}})
	if err != nil {
		t.Fatalf("open a root: %v", err)
	}
	t.Cleanup(func() { r.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := parents.Seed(ctx, r); err != nil {
		t.Fatalf("make the first organisation: %v", err)
	}
	w := &world{t: t, root: r}
	w.API, err = parents.OpenAPI(ctx, r, r.Store, parents.APIConfig{Dir: dir, Argon2: auth.Argon2{Memory: 64, Time: 1},
		Limits: api.Limits{UserRate: -1, AddressRate: -1}, Listen: api.Listen{Addr: "127.0.0.1:0"}})
	if err != nil {
		t.Fatalf("open the API: %v", err)
	}
	for _, m := range []any{apps.PutOrg{Org: apps.Org{Name: "other"}},
		apps.PutNamespace{Namespace: apps.Namespace{Name: "test", Org: "default"}}} {
		if _, err := r.Do(ctx, m); err != nil {
			t.Fatalf("%T: %v", m, err)
		}
	}
	for user, org := range map[string]string{"ann": "default", "eve": "other"} {
		if _, err := w.API.People.CreateUser(ctx, auth.NewUser{Name: user, Password: password,
			Grants: []auth.Grant{{Role: auth.RoleDeveloper, Org: org, Cluster: auth.Any}}}); err != nil {
			t.Fatalf("create user %s: %v", user, err)
		}
	}
	opt.API = w.API.Handler()
	w.front = oakestra.New(opt)
	return w
}

// send sends a request as a client would, and gives the answer.
func (w *world) send(method, path, body string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:10000"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:4242"
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	for _, f := range edit {
		f(r)
	}
	res := httptest.NewRecorder()
	w.front.ServeHTTP(res, r)
	return res
}

// login logs in, and has what follows sent with the token.
func (w *world) login(user, password string) string {
	w.t.Helper()
	w.token = ""
	res := w.send("POST", "/api/auth/login", fmt.Sprintf(`{"username":%q,"password":%q}`, user, password))
	var got struct {
		Token   string `json:"token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal(res.Body.Bytes(), &got); err != nil || res.Code != http.StatusOK || got.Token == "" || got.Refresh == "" {
		w.t.Fatalf("log in as %s: %d %s", user, res.Code, res.Body)
	}
	w.token = got.Token
	return got.Refresh
}

// show sends a request, and writes it down with the answer. Tokens and times differ each time.
func (w *world) show(what, method, path, body string) {
	w.t.Helper()
	res := w.send(method, path, body)
	fmt.Fprintf(&w.out, "# %s\n%s %s\n", what, method, path)
	if body != "" {
		fmt.Fprintln(&w.out, strings.TrimSpace(body))
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, bytes.TrimSpace(res.Body.Bytes()), "", "  "); err != nil {
		w.t.Errorf("%s: the answer is not JSON: %s", what, res.Body)
	}
	if kind := res.Header().Get("Content-Type"); kind != "application/json" {
		w.t.Errorf("%s: the answer is %q", what, kind)
	}
	text := regexp.MustCompile(`"(token|refresh_token)": "[^"]+"`).ReplaceAllString(pretty.String(), `"$1": "..."`)
	fmt.Fprintf(&w.out, "%d\n%s\n\n", res.Code, text)
}

func (w *world) golden(file string) {
	w.t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, w.out.Bytes(), 0o644); err != nil {
			w.t.Fatalf("write the golden file: %v", err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatalf("read the golden file: %v", err)
	}
	if !bytes.Equal(want, w.out.Bytes()) {
		w.t.Errorf("%s is not what is answered; look at what changed, then run the test with -update:\n%s", file, w.out.Bytes())
	}
}

const buoy = `{"sla_version": "v2.0", "customerID": "ann", "applications": [
  {"applicationID": "", "application_name": "Buoy", "application_namespace": "test", "application_desc": "light and wind",
   "microservices": [
    {"microserviceID": "", "microservice_name": "light", "microservice_namespace": "test", "virtualization": "container",
     "cmd": ["/light"], "memory": 64, "vcpus": 1, "code": "127.0.0.1:1/buoy/light:1", "port": "8080:80/tcp", "environment": ["COLOUR=red"],
     "addresses": {"rr_ip": "10.30.7.7"}},
    {"microserviceID": "", "microservice_name": "wind", "microservice_namespace": "test", "virtualization": "container",
     "code": "127.0.0.1:1/buoy/wind:1", "one_shot": true}]}]}
`

// TestSession is what a client does, and what it is answered.
func TestSession(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	w.show("Nobody is let in without a login.", "GET", "/api/applications", "")
	w.show("Nor is anything that they send looked at.", "POST", "/api/application", `{"sla_version": "v2.0", "applications": 7}`)
	w.show("A login.", "POST", "/api/auth/login", `{"username": "ann", "password": "an oak by the sea"}`)
	w.login("ann", password)
	w.show("There is nothing yet.", "GET", "/api/applications/", "")
	w.show("An SLA is stored; nothing runs.", "POST", "/api/application", buoy)
	w.show("All applications.", "GET", "/api/applications", "")
	w.show("One application.", "GET", "/api/application/"+w.id("application"), "")
	w.show("Its services.", "GET", "/api/services/"+w.id("application"), "")
	w.show("An instance of a service.", "POST", "/api/service/"+w.id("light")+"/instance", "")
	w.show("Another one.", "POST", "/api/service/"+w.id("light")+"/instance", "")
	w.show("The run of a job.", "POST", "/api/service/"+w.id("wind")+"/instance", "")
	w.show("The service waits for a site.", "GET", "/api/service/"+w.id("light"), "")
	w.show("A name is enough to look at a service.", "GET", "/api/service/wind", "")
	w.show("But not to change it.", "DELETE", "/api/service/wind", "")
	w.show("The first instance ends.", "DELETE", "/api/service/"+w.id("light")+"/instance/0", "")
	w.show("The other one is left.", "GET", "/api/services/", "")
	w.show("A service more.", "POST", "/api/service", strings.NewReplacer(`"applicationID": ""`, `"applicationID": "`+w.id("application")+`"`,
		`"light"`, `"bell"`, `"wind"`, `"foghorn"`, "10.30.7.7", "10.30.7.8", "8080:80", "80").Replace(buoy))
	w.show("A service less.", "DELETE", "/api/service/"+w.id("wind"), "")
	w.show("The application has the others.", "GET", "/api/application/"+w.id("application"), "")
	w.show("A developer does not see sites.", "GET", "/api/clusters/active", "")
	w.show("The application ends.", "DELETE", "/api/application/"+w.id("application"), "")
	w.golden("session.txt")
}

// id gives the ID of the one application, or of a service of it.
func (w *world) id(name string) string {
	w.t.Helper()
	var list []struct {
		ID   string `json:"microserviceID"`
		App  string `json:"applicationID"`
		Name string `json:"microservice_name"`
	}
	res := w.send("GET", "/api/services", "")
	if err := json.Unmarshal(res.Body.Bytes(), &list); err != nil {
		w.t.Fatalf("list the services: %v: %s", err, res.Body)
	}
	for _, s := range list {
		switch name {
		case s.Name:
			return s.ID
		case "application":
			return s.App
		}
	}
	w.t.Fatalf("there is no %s: %s", name, res.Body)
	return ""
}

// TestBadRequests is what clients are told of what cannot be done.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	w.show("A wrong password.", "POST", "/api/auth/login", `{"username": "ann", "password": "an elm"}`)
	w.show("Oakestra's first user, whom nobody set up.", "POST", "/api/auth/login", `{"username": "Admin", "password": "Admin"}`)
	w.show("No name.", "POST", "/api/auth/login", `{}`)
	w.show("No JSON.", "POST", "/api/auth/login", "{\n  \"username\": ann}")
	w.show("An organisation.", "POST", "/api/auth/login", `{"username": "ann", "password": "x", "organization_name": "default"}`)
	w.login("ann", password)
	w.show("No such application.", "GET", "/api/application/0123456789abcdef01234567", "")
	w.show("No such service.", "POST", "/api/service/..%2f..%2fv1/instance", "")
	w.show("Nothing like that.", "GET", "/api/users", "")
	w.show("No change.", "PUT", "/api/service/0123456789abcdef01234567", "{}")
	w.show("No SLA.", "POST", "/api/application", `[]`)
	w.show("A key twice.", "POST", "/api/application", `{"sla_version": "v2.0", "sla_version": "v2.0"}`)
	w.show("No application.", "POST", "/api/application", `{"sla_version": "v2.0", "customerID": "ann", "applications": []}`)
	w.show("No service.", "POST", "/api/application", `{"sla_version": "v2.0", "customerID": "ann", "applications": [
  {"application_name": "empty", "application_namespace": "test", "microservices": []}]}`)
	second := `, {"application_name": "second", "application_namespace": "test", "microservices": [
  {"microservice_name": "one", "virtualization": "container", "code": "x:1", "state": "s3://x", "memory": "much"}]}]}`
	w.show("Fields of the second application that Skerry does not have.", "POST", "/api/application",
		strings.TrimSuffix(strings.TrimSpace(buoy), "]}")+second)
	w.show("A namespace that is not there.", "POST", "/api/application", strings.ReplaceAll(buoy, `"test"`, `"nowhere"`))
	w.show("A name that is too long, and an address from another network.", "POST", "/api/application",
		strings.NewReplacer("10.30.7.7", "192.0.2.1", `"light"`, `"`+strings.Repeat("light", 20)+`"`).Replace(buoy))
	w.show("Nothing of that was stored.", "GET", "/api/applications", "")
	w.show("One that works.", "POST", "/api/application", buoy)
	w.show("The same again.", "POST", "/api/application", buoy)
	w.show("No such instance.", "DELETE", "/api/service/"+w.id("light")+"/instance/7", "")
	w.show("No number.", "DELETE", "/api/service/"+w.id("light")+"/instance/all", "")
	app := w.id("application")
	w.show("A service that is there.", "POST", "/api/service",
		strings.Replace(buoy, `"applicationID": ""`, `"applicationID": "`+app+`"`, 1))
	w.login("eve", password)
	w.show("Another organisation sees nothing of it.", "GET", "/api/applications", "")
	w.show("Nor finds it.", "DELETE", "/api/application/"+app, "")
	w.show("Nor may add to it.", "POST", "/api/application", strings.Replace(buoy, "Buoy", "Mine", 1))
	w.golden("bad.txt")
}

// A refresh token works once, and the answer has the next.
func TestRefresh(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	refresh := w.login("ann", password)
	w.token = refresh
	res := w.send("POST", "/api/auth/refresh", "")
	var got struct {
		Token   string `json:"token"`
		Refresh string `json:"refresh_token"`
	}
	if err := json.Unmarshal(res.Body.Bytes(), &got); err != nil || res.Code != http.StatusOK || got.Refresh == "" || got.Refresh == refresh {
		t.Fatalf("it is answered %d %s", res.Code, res.Body)
	}
	w.token = got.Token
	if res := w.send("GET", "/api/applications", ""); res.Code != http.StatusOK {
		t.Errorf("with the new token: %d %s", res.Code, res.Body)
	}
	for what, token := range map[string]string{"none": "", "not one": "x.y.z", "an access token": got.Token} {
		w.token = token
		if res := w.send("POST", "/api/auth/refresh", ""); res.Code != http.StatusUnauthorized {
			t.Errorf("%s is taken for a refresh token: %d %s", what, res.Code, res.Body)
		}
	}
}

// The password that everybody knows begins a session of the user that the operator has chosen, for programs on this machine alone.
func TestAdmin(t *testing.T) {
	const login = `{"username":"Admin","password":"Admin"}`
	w := newWorld(t, oakestra.Options{Admin: &oakestra.Login{User: "ann", Password: password}})
	w.login("Admin", "Admin")
	if who, err := w.API.People.Authenticate(w.token); err != nil || who.User != "ann" {
		t.Errorf("the session is that of %+v: %v", who, err)
	}
	w.token = ""
	for what, edit := range map[string]func(*http.Request){
		"a page's origin":       func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:10000") },
		"a page's request":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") },
		"a name for loopback":   func(r *http.Request) { r.Host = "rebound.example:10000" },
		"an address of another": func(r *http.Request) { r.Host = "192.0.2.1:10000" },
		"no host":               func(r *http.Request) { r.Host = "" },
	} {
		if res := w.send("POST", "/api/auth/login", login, edit); res.Code == http.StatusOK {
			t.Errorf("%s is let in: %d %s", what, res.Code, res.Body)
		}
	}
	for _, host := range []string{"localhost:10000", "0.0.0.0:10000", "[::1]:10000", "127.0.0.1"} {
		if res := w.send("POST", "/api/auth/login", login, func(r *http.Request) { r.Host = host }); res.Code != http.StatusOK {
			t.Errorf("by %s nobody gets in: %d %s", host, res.Code, res.Body)
		}
	}
	if res := w.send("POST", "/api/auth/login", `{"username":"Admin","password":"admin"}`); res.Code == http.StatusOK {
		t.Errorf("another password: %d %s", res.Code, res.Body)
	}
}

// Guesses here count like those at Skerry's own API, and are in the audit.
func TestGuessing(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	limited := 0
	for range 8 {
		switch res := w.send("POST", "/api/auth/login", `{"username":"ann","password":"a guess"}`); res.Code {
		case http.StatusTooManyRequests:
			limited++
		case http.StatusUnauthorized:
		default:
			t.Errorf("it is answered %d %s", res.Code, res.Body)
		}
	}
	if limited == 0 {
		t.Error("eight guesses were not slowed down")
	}
	_, err := w.API.People.Login(t.Context(), auth.Credentials{User: "ann", Password: password, Addr: "127.0.0.1"})
	if skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeRateLimited {
		t.Errorf("Skerry's own login does not count them: %v", err)
	}
	w.login("eve", password)
	list, err := w.API.People.AuditRecords(t.Context(), 100, func(r *auth.AuditRecord) bool {
		return r.Operation == "login" && r.Object == "ann" && r.Result == string(skerry.CodeUnauthorized) && r.Address == "127.0.0.1"
	})
	if err != nil || len(list) == 0 {
		t.Errorf("the audit has %d of the guesses: %v", len(list), err)
	}
}

// A body that never ends, or is too large, is not read; what a client sends ends at that client.
func TestLargeBodies(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	w.login("ann", password)
	large := `{"sla_version": "` + strings.Repeat("v", 1<<20) + `"}`
	res := w.send("POST", "/api/application", large)
	if res.Code != http.StatusRequestEntityTooLarge || res.Header().Get("Connection") != "close" {
		t.Errorf("it is answered %d %s", res.Code, res.Body)
	}
	unknown := func(r *http.Request) { r.ContentLength = -1 }
	if res := w.send("POST", "/api/application", large, unknown); res.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("of unknown length: %d %s", res.Code, res.Body)
	}
	many := `{"sla_version": "v2.0", "args": [` + strings.Repeat(`"a",`, 30_000) + `"a"], "applications": []}`
	if res := w.send("POST", "/api/application", many); res.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("of many values: it is answered %d %s", res.Code, res.Body)
	}
	deep := `{"applications": ` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`
	if res := w.send("POST", "/api/application", deep); res.Code != http.StatusUnprocessableEntity {
		t.Errorf("nested deeply: %d %s", res.Code, res.Body)
	}
}

// Instances that are started at the same time are all there.
func TestStartsAtTheSameTime(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	w.login("ann", password)
	if res := w.send("POST", "/api/application", buoy); res.Code != http.StatusOK {
		t.Fatalf("it is answered %d %s", res.Code, res.Body)
	}
	path := "/api/service/" + w.id("light") + "/instance"
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if res := w.send("POST", path, ""); res.Code != http.StatusOK {
				t.Errorf("it is answered %d %s", res.Code, res.Body)
			}
		})
	}
	all.Wait()
	list, err := w.root.Instances(t.Context())
	if err != nil || len(list) != 9 { // with that of the job
		t.Errorf("%d instances: %v", len(list), err)
	}
}

// What was applied in Skerry's own terms is shown, and is not started in a way that it does not have.
func TestOtherModes(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	app := spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: "tide", Namespace: "test"},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{
			{Name: "tables", Mode: spec.ModeCron, Cron: &spec.CronSpec{Schedule: "0 3 * * *"}},
		}}}
	app.Spec.Services[0].Image = registry + "/tide:1"
	if _, err := w.root.Do(t.Context(), apps.Apply{App: app}); err != nil {
		t.Fatalf("apply it: %v", err)
	}
	w.login("ann", password)
	if res := w.send("POST", "/api/service/"+w.id("tables")+"/instance", ""); res.Code != http.StatusNotImplemented {
		t.Errorf("a run outside of the schedule: it is answered %d %s", res.Code, res.Body)
	}
}

// TestGoClient decodes answers as Oakestra's client in Go does, which is strict about numbers and texts.
func TestGoClient(t *testing.T) {
	w := newWorld(t, oakestra.Options{})
	w.login("ann", password)
	if res := w.send("POST", "/api/application", buoy); res.Code != http.StatusOK {
		t.Fatalf("store an SLA: %d %s", res.Code, res.Body)
	}
	w.send("POST", "/api/service/"+w.id("light")+"/instance", "")
	type application struct {
		ID            string   `json:"applicationID"`
		Name          string   `json:"application_name"`
		Description   string   `json:"application_desc"`
		Microservices []string `json:"microservices"`
	}
	type service struct {
		ID        string `json:"microserviceID"`
		AppName   string `json:"application_name"`
		AloneName string `json:"app_name"`
		Instances []struct {
			Number        int    `json:"instance_number"`
			Status        string `json:"status"`
			HostPort      int    `json:"host_port"`
			CPUPercent    string `json:"cpu_percent"`
			MemoryPercent string `json:"memory_percent"`
			Logs          string `json:"logs"`
		} `json:"instance_list"`
		Port        string   `json:"port"`
		Memory      int      `json:"memory"`
		CPUs        int      `json:"vcpus"`
		Environment []string `json:"environment"`
		RoundRobin  string   `json:"RR_ip"`
	}
	var app application
	var applications []application
	var one service
	var services []service
	for path, into := range map[string]any{"/api/applications": &applications, "/api/application/" + w.id("application"): &app,
		"/api/services/": &services, "/api/service/" + w.id("light"): &one} {
		if err := json.Unmarshal(w.send("GET", path, "").Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(applications) != 1 || len(app.Microservices) != 2 || app.Description != "light and wind" || len(services) != 2 {
		t.Errorf("it reads %+v of %+v, with %+v", app, applications, services)
	}
	if one.AppName != "buoy" || one.AloneName != "buoy" || one.Memory != 64 || one.CPUs != 1 || one.Port != "8080:80/tcp" ||
		one.RoundRobin != "10.30.7.7" || len(one.Instances) != 1 || one.Instances[0].Status != "REQUESTED" {
		t.Errorf("it reads %+v", one)
	}
}

// FuzzRequest holds that whatever a client sends is answered in JSON, that nobody gets in with a token that no login gave, and that no
// path leads to another operation of the REST interface.
func FuzzRequest(f *testing.F) {
	w := newWorld(f, oakestra.Options{})
	w.login("ann", password)
	real := w.token
	w.send("POST", "/api/application", buoy)
	app, light := w.id("application"), w.id("light")
	f.Fuzz(func(t *testing.T, method, path, token, body string) {
		path = "http://127.0.0.1:10000/api/" + strings.NewReplacer("APP", app, "LIGHT", light).Replace(path)
		r, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if err != nil || len(body) > 1<<16 {
			return
		}
		r.RemoteAddr = "127.0.0.1:4242"
		r.Header.Set("Authorization", strings.ReplaceAll(token, "REAL", real))
		res := httptest.NewRecorder()
		w.front.ServeHTTP(res, r)
		if method == http.MethodDelete && res.Code == http.StatusOK {
			w.send("POST", "/api/application", buoy) // it may be the one that is gone
		}
		if res.Code >= 300 && res.Code < 400 { // a path that is not clean
			return
		}
		if !json.Valid(res.Body.Bytes()) || res.Header().Get("Content-Type") != "application/json" {
			t.Errorf("it is answered %d %s", res.Code, res.Body)
		}
		if res.Code == http.StatusInternalServerError {
			t.Errorf("%s %s ends in %s", method, path, res.Body)
		}
		if res.Code == http.StatusOK && !strings.Contains(token, "REAL") && r.URL.Path != "/api/auth/login" && r.URL.Path != "/api/auth/login/" {
			t.Errorf("%s %s with the token %q: %s", method, path, token, res.Body)
		}
	})
}
