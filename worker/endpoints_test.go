//go:build linux

package worker

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// The file names service addresses where there is an overlay, and instances where there is none.
func TestEndpointsFile(t *testing.T) {
	base := t.TempDir()
	dir := func(id skerry.InstanceID) string { return filepath.Join(base, string(id)) }
	app := skerry.AppKey{Namespace: "default", Name: "shop"}
	web, db := skerry.ServiceKey{App: app, Service: "web"}, skerry.ServiceKey{App: app, Service: "db"}
	e := newEndpoints()
	for id, of := range map[skerry.InstanceID]skerry.AppKey{"front-1": app, "other-1": {Namespace: "default", Name: "other"}} {
		if err := os.MkdirAll(filepath.Join(dir(id), "run"), 0o700); err != nil {
			t.Fatal(err)
		}
		e.know(id, of)
	}
	e.know("gone-1", app) // its directory is not there any more
	ok := func(errs []error) {
		t.Helper()
		if len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	has := func(id skerry.InstanceID, want string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir(id), "run", endpointsFile))
		if got := strings.Join(strings.Fields(string(b)), ""); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", id, got, err, want)
		}
	}
	ok(e.set(core.Endpoints{Service: web,
		List: []wire.Endpoint{{Instance: "web-1", Port: "http", Address: "192.0.2.7:30000", Protocol: "tcp"}}}, dir))
	ok(e.set(core.Endpoints{Service: db}, dir))
	const hosts = `{"db":[],"web":[{"instance":"web-1","port":"http","address":"192.0.2.7:30000","protocol":"tcp"}]}`
	has("front-1", hosts)
	n := &wire.AppNetwork{App: app, Net: 7, Services: []wire.NetworkService{
		{Name: "web", RoundRobin: netip.MustParseAddr("10.30.9.9"), Of: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "other"}, Service: "web"}, Ports: []spec.Port{{Port: 1}}},
		{Name: "web", RoundRobin: netip.MustParseAddr("10.30.1.1"), Ports: []spec.Port{{Name: "http", Port: 80}, {Port: 81, Protocol: "udp"}}},
		{Name: "cache", RoundRobin: netip.MustParseAddr("10.30.1.4"), Ports: []spec.Port{{Port: 6379}}},
		{Name: "db", Ports: []spec.Port{{Port: 5432}}}}}
	ok(e.network(app, n, dir))
	const addresses = `{"db":[],"web":[{"name":"web","port":"http","address":"10.30.1.1:80","protocol":"tcp"},{"name":"web","port":"udp-81","address":"10.30.1.1:81","protocol":"udp"}]}`
	has("front-1", addresses)
	// What is measured from the host are instances, whatever the file says; and who comes later gets the same.
	if list := e.of(web); len(list) != 1 || list[0].Instance != "web-1" {
		t.Errorf("%+v", list)
	}
	ok(e.set(core.Endpoints{Service: web}, dir))
	has("front-1", addresses)
	if err := e.write(filepath.Join(dir("other-1"), "run", endpointsFile), app); err != nil {
		t.Fatal(err)
	}
	has("other-1", addresses)
	ok(e.set(core.Endpoints{Service: db, Gone: true}, dir))
	ok(e.network(app, nil, dir))
	has("front-1", `{"web":[]}`)
	if _, err := os.Stat(dir("gone-1")); err == nil {
		t.Error("the directory of one that is gone was made")
	}
}
