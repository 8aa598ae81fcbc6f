//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact/imageref"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestWithoutNetwork has a worker whose instances get no network: a container is reached in its own, and a process of the host at the ports that
// it declares and listens on itself. What else listens on the host is not reached through either, by nobody's probe and port-forward.
func TestWithoutNetwork(t *testing.T) {
	s := (&site{t: t, noNetwork: true}).open()
	_, c := s.serve("root", s.Root, s.Root.Store)
	s.image("default/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the host's own service was asked") }))
	defer secret.Close()
	port := secret.Listener.Addr().(*net.TCPAddr).Port
	probe := func(port int) spec.Probes {
		return spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: port, Path: "/healthz"}}}
	}
	web := spec.Port{Port: 8080}
	service := func(name, runtime string, probes spec.Probes, ports ...spec.Port) spec.ServiceSpec {
		svc := spec.ServiceSpec{Name: name, Runtime: runtime, Container: spec.Container{Image: "default/catalog:1"}, Ports: ports, Probes: probes,
			Resources: spec.Resources{CPU: 100, Memory: 64 * skerry.MiB}}
		if runtime == spec.RuntimeNative {
			svc.Command = []string{"/program"}
		}
		return svc
	}
	s.do(apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: "shop"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{
		service("box", spec.RuntimeOCI, probe(8080), web),
		service("bare", spec.RuntimeNative, probe(8080), web, spec.Port{Name: "theirs", Port: port}),
		service("thief", spec.RuntimeOCI, probe(port)), // has a loopback of its own
	}}}})
	of := func(service string) (i wire.Instance) {
		list, err := s.Root.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if x.Service.Service == service {
				i = x
			}
		}
		return i
	}
	s.await("two are ready", func() bool { return isReady(of("box")) && isReady(of("bare")) })
	for what, want := range map[[2]string]string{
		{"box", "8080"}: "", {"box", strconv.Itoa(port)}: "does not answer", {"bare", "8080"}: "",
		{"bare", strconv.Itoa(port)}: "does not listen on port", {"bare", "8081"}: "declares no TCP port 8081",
	} {
		n, _ := strconv.Atoi(what[1])
		conn, err := c.PortForward(t.Context(), of(what[0]).ID, n)
		if err == nil {
			var res *http.Response
			req, _ := http.NewRequest("GET", "http://instance/healthz", nil)
			tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, DisableKeepAlives: true}
			if res, err = tr.RoundTrip(req); err == nil {
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					err = fmt.Errorf("status %s", res.Status)
				}
			}
			conn.Close()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v", what, err)
		}
		if e, ok := errors.AsType[*skerry.Error](err); want != "" && what[0] == "bare" && (!ok || e.Code != skerry.CodeForbidden || e.Hint == "") {
			t.Errorf("%v: %#v", what, err)
		}
	}
	if isReady(of("thief")) {
		t.Error("a probe of the host's service made an instance ready")
	}
	// A site gets nothing from the root's registry that it was not given, by its tag or by its digest.
	s.image("default/other:1", "skerry.dev/skerry/examples/shop/orders")
	other, ok := s.Root.Images.Store.Lookup(imageref.Ref{Registry: "skerry.local", Repository: "default/other", Tag: "1"})
	if !ok {
		t.Fatal("the image is not there")
	}
	for _, ref := range []string{"skerry.local/default/catalog:1", "skerry.local/default/other:1", "skerry.local/default/other@" + string(other)} {
		if got, err := s.Cluster.Images.Resolve(t.Context(), ref); err == nil && got.Digest != "" {
			t.Errorf("the site pulled %s", ref)
		}
	}
}

// A command beside a process of the host runs as the process does, and not as somebody of the host, for an organisation that is not trusted.
func TestNativeOfStrangers(t *testing.T) {
	s := (&site{t: t, noNetwork: true, admission: &clustercore.Admission{Native: true}}).open()
	_, c := s.serve("root", s.Root, s.Root.Store)
	svc := spec.ServiceSpec{Name: "bare", Runtime: spec.RuntimeNative, Resources: spec.Resources{CPU: 100, Memory: 64 * skerry.MiB}}
	svc.Command = []string{"/bin/sleep", "1000"}
	s.do(app("shop", svc))
	s.await("it runs", s.ready(1))
	id := s.only().ID
	// A program of an image, in a directory of the worker's that its user may not enter.
	s.image("default/wait:1", workload)
	s.do(app("other", service("imaged", "default/wait:1", func(x *spec.ServiceSpec) { x.Runtime, x.Args = spec.RuntimeNative, []string{"sleep"} })))
	s.await("both run", s.ready(2))
	for user, want := range map[string]string{"": "", "root": "needs the security level privileged", "0:0": "needs the security level privileged"} {
		var out bytes.Buffer
		ec, closer, err := c.Exec(t.Context(), id, api.ExecOptions{Command: []string{"/usr/bin/id", "-u"}, User: user})
		if err == nil {
			for {
				kind, p, err := ec.Read()
				if err != nil || kind == execstream.Exit {
					break
				}
				out.Write(p)
			}
			closer.Close()
		}
		if want == "" && (err != nil || strings.TrimSpace(out.String()) == "0" || out.Len() == 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("as %q: %v, %q", user, err, out.String())
		}
	}
}

func isReady(i wire.Instance) bool {
	return i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
}
