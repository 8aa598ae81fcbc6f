//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

const workload = "skerry.dev/skerry/runtime/runtimetest/workload"

func service(name, image string, edit ...func(*spec.ServiceSpec)) spec.ServiceSpec {
	s := spec.ServiceSpec{Name: name, Resources: spec.Resources{CPU: 100, Memory: 64 * skerry.MiB}}
	s.Image = image
	for _, f := range edit {
		f(&s)
	}
	return s
}

func (s *site) do(msg any) {
	s.t.Helper()
	if _, err := s.Root.Do(s.t.Context(), msg); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) only() wire.Instance {
	s.t.Helper()
	list, err := s.Root.Instances(s.t.Context())
	if err != nil || len(list) != 1 {
		s.t.Fatalf("%d instances, %v", len(list), err)
	}
	return list[0]
}

// pids of the containers' first processes on this machine, by instance.
func (s *site) pids() map[skerry.InstanceID]int {
	s.t.Helper()
	out := map[skerry.InstanceID]int{}
	for _, d := range s.Worker.Drivers {
		maps.Copy(out, pidsOf(s.t, d))
	}
	return out
}

func TestWorkloadsOutliveTheAgent(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	two := 2
	s.do(app("shop", service("web", "test/catalog:1", func(x *spec.ServiceSpec) {
		x.Replicas = &two
		x.Ports = []spec.Port{{Port: 8080, HostPort: -1}}
	})))
	s.await("two instances are ready", s.ready(2))
	before := s.pids()
	if len(before) != 2 {
		t.Fatalf("%d containers run", len(before))
	}
	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	for id, pid := range before {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); err != nil {
			t.Fatalf("%s ended with the agent", id)
		}
	}
	s.startWorker("")
	s.await("the worker is back", func() bool {
		ws, err := s.Cluster.Workers(context.Background())
		return err == nil && len(ws) == 1 && ws[0].Connected && s.ready(2)()
	})
	time.Sleep(200 * time.Millisecond) // a wrongly restarted container would show by now
	after := s.pids()
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s has process %d instead of %d", id, after[id], pid)
		}
	}
	list, _ := s.Root.Instances(t.Context())
	for _, i := range list {
		if i.Restarts != 0 {
			t.Errorf("%s was restarted %d times", i.ID, i.Restarts)
		}
	}
}

func TestUpdateStartsTheNewOneFirst(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	if err := s.Root.Images.Store.Tag("skerry.local/test/catalog:1", "skerry.local/test/catalog:2"); err != nil {
		t.Fatal(err)
	}
	s.do(app("shop", service("web", "test/catalog:1")))
	s.await("the first version is ready", s.ready(1))
	old := s.only()
	s.do(app("shop", service("web", "test/catalog:2")))
	sawBoth := false
	s.await("only the new version is left", func() bool {
		list, err := s.Root.Instances(context.Background())
		if err != nil {
			return false
		}
		sawBoth = sawBoth || len(list) == 2
		ready := 0
		for _, i := range list {
			if skerry.HasCondition(i.Conditions, skerry.Ready) {
				ready++
			}
		}
		if ready == 0 {
			t.Error("for a moment no version was ready")
		}
		return len(list) == 1 && list[0].ID != old.ID && ready == 1
	})
	if !sawBoth {
		t.Error("the old one was ended before the new one was there")
	}
}

func TestOutOfMemoryIsToldAsSuch(t *testing.T) {
	s := newSite(t)
	s.image("test/workload:1", workload)
	s.do(app("greedy", service("hog", "test/workload:1", func(x *spec.ServiceSpec) {
		x.Args = []string{"alloc", "256"}
		x.Resources.Memory = 32 * skerry.MiB
		x.Restart.Policy = "never"
	})))
	s.await("the kill is told", func() bool {
		for _, e := range s.Root.Journal().List(0, nil) {
			if e.Reason == "OOMKilled" {
				return true
			}
		}
		return false
	})
}

func TestMissingImageNamesTheField(t *testing.T) {
	s := newSite(t)
	_, err := s.Root.Do(t.Context(), app("shop", service("web", "skerry.local/no/such:1")))
	e := skerry.AsError(err)
	if e == nil || e.Code != skerry.CodeInvalid || !strings.Contains(e.Message, "skerry.local/no/such:1") || e.Hint == "" || len(e.Problems) != 1 || e.Problems[0].Path != "spec.services[0].image" {
		t.Fatalf("%+v", e)
	}
	if list, _, _ := s.Root.AppPage(t.Context(), apps.AppPage{}); len(list) != 0 {
		t.Error("something was stored")
	}
}

// TestImageOfAnotherArchitecture places nothing where the image does not run, and fetches nothing there.
func TestImageOfAnotherArchitecture(t *testing.T) {
	s := newSite(t)
	src, arch := t.TempDir(), "riscv64"
	if goruntime.GOARCH == arch {
		arch = "amd64"
	}
	if err := os.WriteFile(filepath.Join(src, "program"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: src, Tag: "skerry.local/test/foreign:1", Platform: artifact.Platform{OS: "linux", Arch: arch}, Entrypoint: []string{"/program"}}); err != nil {
		t.Fatal(err)
	}
	s.do(app("shop", service("web", "test/foreign:1")))
	s.await("the reason is told", func() bool {
		list, _ := s.Root.Instances(t.Context())
		return len(list) == 1 && slices.ContainsFunc(list[0].Why, func(r wire.Reason) bool { return r.What == "arch" && strings.Contains(r.Text, arch) })
	})
	for _, e := range s.Worker.Images.List() {
		t.Errorf("the worker has %s", e.Ref)
	}
}

// instanceAPI serves an instance's requests at the root as the API does after it has checked the user.
func (s *site) instanceAPI() *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		s.Root.ServeInstance(w, r, skerry.InstanceID(id), "/"+rest)
	}))
	s.t.Cleanup(srv.Close)
	return srv
}

func TestLogsExecAndForwardThroughAllTiers(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.image("test/workload:1", workload)
	s.do(app("shop", service("web", "test/catalog:1"), service("box", "test/workload:1", func(x *spec.ServiceSpec) { x.Args = []string{"sleep"} })))
	s.await("both are ready", s.ready(2))
	list, _ := s.Root.Instances(t.Context())
	var web, box skerry.InstanceID
	for _, i := range list {
		if i.Service.Service == "web" {
			web = i.ID
		} else {
			box = i.ID
		}
	}
	srv := s.instanceAPI()

	// It is ready when it has been started, which may be before it has written its first line.
	res, err := http.Get(srv.URL + "/" + string(web) + "/logs?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var line runtime.LogEntry
	if err := json.NewDecoder(res.Body).Decode(&line); err != nil || !strings.Contains(line.Line, "catalog "+string(web)) {
		t.Errorf("log: %+v %v", line, err)
	}

	conn := switchTo(t, srv.URL+"/"+string(box)+"/exec?"+url.Values{"command": {"/program", "exit", "7"}}.Encode(), execstream.ProtoExec)
	ec := execstream.New(conn)
	for {
		typ, p, err := ec.Read()
		if err != nil {
			t.Fatal(err)
		}
		if typ == execstream.Exit {
			var r execstream.Result
			if json.Unmarshal(p, &r); r.Code != 7 || r.Error != "" {
				t.Errorf("exec: %+v", r)
			}
			break
		}
	}

	conn = switchTo(t, srv.URL+"/"+string(web)+"/portforward?port=8080", execstream.ProtoForward)
	io.WriteString(conn, "GET /healthz HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "ok\n") {
		t.Errorf("forwarded: %q %v", answer, err)
	}
}

// switchTo makes a request and takes its connection over.
func switchTo(t *testing.T, target, proto string) net.Conn {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	req, err := http.NewRequest(http.MethodPost, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", proto)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %s", res.Status, body)
	}
	return execstream.Joined{Conn: conn, R: r}
}

func TestRestartAndDelete(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.do(app("shop", service("web", "test/catalog:1")))
	s.await("it is ready", s.ready(1))
	before := s.only()
	s.do(apps.Restart{Service: skerry.ServiceKey{App: before.Service.App, Service: "web"}})
	s.await("it was restarted in place", func() bool {
		list, _ := s.Root.Instances(context.Background())
		return len(list) == 1 && list[0].ID == before.ID && list[0].Restarts == 1 && s.ready(1)()
	})
	s.do(apps.Delete{Key: before.Service.App})
	s.await("it is gone", func() bool {
		list, _, err := s.Root.AppPage(context.Background(), apps.AppPage{})
		return err == nil && len(list) == 0
	})
	if left := s.pids(); len(left) != 0 {
		t.Errorf("still running: %v", left)
	}
}
