//go:build linux

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
)

// names is a name server that says that every host is this machine, after a while, or not at all.
type names struct {
	silent atomic.Bool
	after  atomic.Int64 // nanoseconds
	asked  atomic.Int64
}

func (n *names) serve(t *testing.T, addr string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			size, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			n.asked.Add(1)
			var m dns.Message
			if n.silent.Load() || m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response = true
			if q := m.Questions[0]; q.Type == dns.TypeA {
				m.Answers = []dns.Resource{{Header: dns.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body: &dns.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			m.Additionals = nil
			out, err := m.Pack()
			if err != nil {
				t.Error(err)
				return
			}
			time.AfterFunc(time.Duration(n.after.Load()), func() { _, _ = pc.WriteTo(out, from) })
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
}

// TestNameServersAreSilent: the name servers of root and site are away, or slow, while images of a registry are looked for. The reason is
// shown, and nothing else suffers: what runs goes on, is shown as it is, and changes are taken.
func TestNameServersAreSilent(t *testing.T) {
	testenv.Long(t, "`overlay/resolver` TestSilentServersHoldUpNoNameOfOurs: silent servers, as far as instances see them")
	const server = "127.0.8.53"
	var n names
	n.serve(t, server+":53")
	p := newProcesses(t, "worker")
	resolv := p.data("resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+server+"\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	images, err := artifact.Open(p.data("images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	program := p.data("program")
	testenv.Build(t, program, "skerry.dev/skerry/examples/shop/catalog")
	for _, tag := range []string{"1", "2"} {
		o := artifact.BuildOptions{Source: program, Tag: "skerry.local/test/far:" + tag, Platform: artifact.HostPlatform(), Env: []string{"V=" + tag}}
		if _, err := images.Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	everybody := func(*http.Request, string, string) error { return nil }
	registry := httptest.NewServer(&artifact.Handler{Store: images, Registry: "skerry.local", Authorize: everybody})
	defer registry.Close()
	registry.Config.SetKeepAlivesEnabled(false) // who has a connection needs no name
	_, port, _ := net.SplitHostPort(registry.Listener.Addr().String())
	host := "registry.example.org:" + port
	p.before = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolv}
	p.more = []string{"--plain-http", host}
	p.threeRoles()
	c := p.stable(1)
	was, err := c.Instances(t.Context(), api.InstanceFilter{App: "stable"})
	if err != nil || len(was) != 1 {
		t.Fatalf("%+v, %v", was, err)
	}
	far := func(tag string, replicas int) []byte {
		return []byte(strings.Replace(manifestOf("far", replicas), "test/catalog:1", host+"/test/far:"+tag, 1))
	}
	// without has a version applied that nobody can fetch, which is taken and shown as what it is, while others are served and so many
	// instances of the version before go on.
	without := func(tag string, running int) {
		t.Helper()
		n.silent.Store(true)
		before := n.asked.Load()
		result := make(chan error, 1)
		go func() { _, err := c.Apply(t.Context(), far(tag, 1), api.ApplyOptions{}); result <- err }()
		await(t, "the name is asked for", func() bool { return n.asked.Load() > before })
		if _, err := c.Apply(t.Context(), []byte(manifestOf("beside-"+tag, 1)), api.ApplyOptions{Register: true}); err != nil {
			t.Errorf("a change that needs no name: %v", err)
		}
		if v, err := c.App(t.Context(), skerry.AppKey{Namespace: "default", Name: "stable"}); err != nil || v.Status != "Ready" {
			t.Errorf("what runs is shown as %q, %v", v.Status, err)
		}
		if err := <-result; err != nil {
			t.Errorf("version %s: %v", tag, err)
		}
		await(t, "the reason names the registry", func() bool {
			v, err := c.App(t.Context(), skerry.AppKey{Namespace: "default", Name: "far"})
			if err == nil && (v.Status == "Ready" || v.Services[0].Ready < running) {
				t.Fatalf("without name servers it is %s, with %d ready: %s", v.Status, v.Services[0].Ready, v.Reason)
			}
			return err == nil && strings.Contains(v.Reason, "registry.example.org")
		})
	}
	n.after.Store(int64(400 * time.Millisecond))
	applied(t, c, "far", far("1", 1), 1)
	without("2", 1)
	// What is at the site needs no name.
	applied(t, c, "stable", []byte(manifestOf("stable", 2)), 2)
	n.silent.Store(false)
	await(t, "the other version runs, too", func() bool {
		v, err := c.App(t.Context(), skerry.AppKey{Namespace: "default", Name: "far"})
		return err == nil && v.Status == "Ready" && v.Gen == 2
	})
	list, err := c.Apps(t.Context(), "default")
	for _, name := range []string{"beside-2", "stable", "far"} {
		found := false
		for _, a := range list {
			found = found || a.Key.Name == name
		}
		if !found {
			t.Errorf("%s is lost: %v", name, err)
		}
	}
	events, err := c.Events(t.Context(), api.EventFilter{})
	for _, e := range events {
		if e.Reason == "WorkerLost" || e.Type == wire.EventWarning && e.App.Name == "stable" {
			t.Errorf("%s %s", e.Reason, e.Text)
		}
	}
	now, err2 := c.Instances(t.Context(), api.InstanceFilter{App: "stable"})
	same := fmt.Sprint(err, err2)
	for _, i := range now {
		if i.ID == was[0].ID && i.StartedAt.Equal(was[0].StartedAt) && i.Restarts == 0 {
			same = ""
		}
	}
	if same != "" {
		t.Errorf("what ran did not go on: %+v, %s", now, same)
	}
}
