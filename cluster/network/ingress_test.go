package network

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// harbour is a site as a scenario describes it. Each application NS/NAME is of the organisation NS, and has one service, web.
type harbour struct {
	t      *testing.T
	asks   map[skerry.AppKey][]AppIngress
	denied map[string]bool // organisations that get no entry
	open   map[string]*IngressWorker
	idle   map[skerry.AppKey]bool // nothing of them is ready
	states map[string]*wire.IngressState
	record []byte
	g      *Ingress
}

func (h *harbour) Asked(app skerry.AppKey) []AppIngress { return slices.Clone(h.asks[app]) }

func (h *harbour) Admit(org string) string {
	if h.denied[org] {
		return "no ingress for " + org
	}
	return ""
}

func (h *harbour) Open() (out []IngressWorker) {
	for _, name := range []string{"w1", "w2", "w3"} {
		if h.open[name] != nil {
			out = append(out, *h.open[name])
		}
	}
	return out
}

func (h *harbour) Ends(way *AppIngress) []skerry.ServiceKey {
	return []skerry.ServiceKey{{App: way.App, Service: way.Service}}
}

func (h *harbour) Ready(k skerry.ServiceKey) bool { return !h.idle[k.App] }

// entry reads HOST:PORT/PATH, with "self:" for TLS of the site's authority or "tcp:" before it.
func (h *harbour) entry(s string) (in spec.Ingress) {
	h.t.Helper()
	in = spec.Ingress{Protocol: spec.IngressHTTP, TLS: spec.TLSOff, Port: "http"}
	if rest, ok := strings.CutPrefix(s, "self:"); ok {
		s, in.TLS = rest, spec.TLSSelf
	}
	if rest, ok := strings.CutPrefix(s, "tcp:"); ok {
		s, in.Protocol = "*:"+rest, spec.IngressTCP
	}
	host, rest, _ := strings.Cut(s, ":")
	port, path, hasPath := strings.Cut(rest, "/")
	n, err := strconv.Atoi(port)
	if err != nil {
		h.t.Fatalf("door %q: %v", s, err)
	}
	if in.Listen = n; host != "*" {
		in.Host = host
	}
	if hasPath {
		in.Path = "/" + path
	}
	return in
}

func (h *harbour) app(s string) skerry.AppKey {
	h.t.Helper()
	k, err := skerry.ParseAppKey(s, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// settle gives what follows when applications ask for other entries.
func (h *harbour) settle(apps ...skerry.AppKey) string {
	look := map[skerry.AppKey]bool{}
	for _, k := range apps {
		look[k] = true
	}
	record, changed, refusals, directories := h.g.Settle(look)
	if record != nil {
		h.record = record
	}
	var out []string
	for _, r := range refusals {
		out = append(out, fmt.Sprintf("%s %s: %s", r.App, r.String(), r.Why))
	}
	for _, k := range directories {
		out = append(out, "publish "+k.String())
	}
	if !changed {
		out = append(out, "unchanged")
	}
	return strings.Join(out, ". ")
}

func (h *harbour) do(verb string, args []string) string {
	h.t.Helper()
	switch verb {
	case "ask": // APP DOOR...
		k := h.app(args[0])
		delete(h.asks, k)
		for _, d := range args[1:] {
			h.asks[k] = append(h.asks[k], AppIngress{App: k, Org: k.Namespace, Service: "web", Ingress: h.entry(d)})
		}
		return h.settle(k)
	case "restart":
		h.g = NewIngress(h)
		if h.record != nil {
			if err := h.g.Load(h.record); err != nil {
				h.t.Fatal(err)
			}
		}
		for name, st := range h.states {
			h.g.Tell(name, st)
		}
		var all []skerry.AppKey
		for k := range h.asks {
			all = append(all, k)
		}
		return h.settle(all...)
	case "deny", "allow":
		h.denied[args[0]] = verb == "deny"
	case "gate": // NAME [away]
		n := args[0][1:]
		h.open[args[0]] = &IngressWorker{Worker: args[0], Connected: len(args) == 1, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2." + n), netip.IPv6Unspecified()}}
	case "closed":
		delete(h.open, args[0])
	case "remove":
		delete(h.open, args[0])
		delete(h.states, args[0])
		h.g.Tell(args[0], nil)
	case "serves": // NAME APP... [DOOR=TROUBLE of the first]
		st := &wire.IngressState{}
		for _, a := range args[1:] {
			if d, text, ok := strings.Cut(a, "="); ok {
				in := h.entry(d)
				st.Problems = append(st.Problems, wire.IngressProblem{Service: skerry.ServiceKey{App: h.app(args[1]), Service: "web"}, Entry: in.Entry(), Text: text})
				continue
			}
			st.Serving = append(st.Serving, h.app(a))
		}
		h.states[args[0]] = st
		h.g.Tell(args[0], st)
	case "idle":
		h.idle[h.app(args[0])] = true
	case "view":
		var out []string
		for _, v := range h.g.Views(h.app(args[0]))["web"] {
			out = append(out, fmt.Sprintf("%s:%d%s at %v %v", v.Host, v.Listen, v.Path, v.At, v.Problems))
		}
		return strings.Join(out, ". ")
	case "up": // what the root is told of all but one application
		var out []string
		for _, d := range h.g.Entries(func(k skerry.AppKey) bool { return len(args) > 0 && k == h.app(args[0]) }) {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s: %d %s", d.Service.App, strings.TrimSpace(d.Entry), d.Workers, d.Problem)))
		}
		return strings.Join(out, ". ")
	case "hosts":
		var out []string
		for _, x := range h.g.Hosts() {
			for _, e := range x.Entries {
				out = append(out, fmt.Sprintf("%s %s %v healthy=%v", x.Host, e.Worker, e.Addrs, e.Healthy))
			}
		}
		return strings.Join(out, ". ")
	case "directory": // what a worker with an ingress is told of an application
		k := h.app(args[0])
		n := &wire.AppNetwork{App: k, Certificates: []wire.IngressCertificate{{Name: "c"}}, Services: []wire.NetworkService{{Name: "web"}}}
		for _, d := range h.asks[k] {
			n.Services[0].Ingress = append(n.Services[0].Ingress, d.Ingress)
		}
		withIngress, plain := h.g.Directory(n, func(*wire.AppNetwork) {})
		if len(plain.Services[0].Ingress)+len(plain.Certificates) > 0 || plain.Authority != nil {
			h.t.Errorf("other workers are told %+v", plain)
		}
		var out []string
		for _, in := range withIngress.Services[0].Ingress {
			out = append(out, in.Entry())
		}
		if withIngress.Authority != nil {
			out = append(out, "authority")
		}
		return strings.Join(out, ", ")
	case "granted":
		return fmt.Sprint(h.g.Granted(h.app(args[0])), " ", h.g.Networks(), " ", h.g.Offers(skerry.ServiceKey{App: h.app(args[0]), Service: "web"}))
	default:
		h.t.Fatalf("no verb %q", verb)
	}
	return ""
}

// TestScenarios plays the files below testdata: a command each line, and behind > what follows.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			h := newHarbour(t)
			lines := bufio.NewScanner(f)
			for n := 1; lines.Scan(); n++ {
				command, want, _ := strings.Cut(lines.Text(), ">")
				words := strings.Fields(command)
				if len(words) == 0 || strings.HasPrefix(words[0], "#") {
					continue
				}
				if got := h.do(words[0], words[1:]); got != strings.TrimSpace(want) {
					t.Errorf("%s:%d: %s: %q, want %q", file, n, strings.TrimSpace(command), got, strings.TrimSpace(want))
				}
				if faults := h.g.Audit(func(worker string) bool { return h.states[worker] != nil }); len(faults) > 0 {
					t.Errorf("%s:%d: %v", file, n, faults)
				}
			}
		})
	}
}

func newHarbour(t *testing.T) *harbour {
	h := &harbour{t: t, asks: map[skerry.AppKey][]AppIngress{}, denied: map[string]bool{}, open: map[string]*IngressWorker{}, idle: map[skerry.AppKey]bool{}, states: map[string]*wire.IngressState{}}
	h.g = NewIngress(h)
	h.record = h.g.Start(&wire.IngressCertificate{CertPEM: []byte("cert"), KeyPEM: []byte("key")})
	return h
}

// TestAuthority: the first one stays, with its key.
func TestAuthority(t *testing.T) {
	h := newHarbour(t)
	if h.record == nil || h.g.Start(&wire.IngressCertificate{CertPEM: []byte("other")}) != nil || !h.g.Fresh() {
		t.Error("the first authority is not written, or a second one is taken")
	}
	h.do("restart", nil)
	if a := h.g.Authority(); a == nil || string(a.CertPEM) != "cert" || string(a.KeyPEM) != "key" || h.g.Fresh() {
		t.Errorf("after a restart: %+v", a)
	}
}

// TestPlausible: a worker counts for one, tells of what it serves alone, and no more than is bearable.
func TestPlausible(t *testing.T) {
	mine, other := skerry.AppKey{Namespace: "a", Name: "b"}, skerry.AppKey{Namespace: "a", Name: "c"}
	st := &wire.IngressState{Serving: slices.Repeat([]skerry.AppKey{mine}, 50), Waiting: slices.Repeat([]skerry.ServiceKey{{App: mine}}, 2*maxWaiting)}
	for i := range 2 * maxIngressProblems {
		st.Problems = append(st.Problems, wire.IngressProblem{Service: skerry.ServiceKey{App: mine, Service: strconv.Itoa(i)}, Text: strings.Repeat("é", maxIngressText)},
			wire.IngressProblem{Service: skerry.ServiceKey{App: other, Service: strconv.Itoa(i)}})
	}
	got := plausible(st)
	if len(got.Serving) != 1 || len(got.Problems) != maxIngressProblems || len(got.Waiting) != maxWaiting || len(got.Problems[0].Text) > maxIngressText+3 {
		t.Errorf("%d served, %d problems, %d waiting, a text of %d bytes", len(got.Serving), len(got.Problems), len(got.Waiting), len(got.Problems[0].Text))
	}
	for _, p := range got.Problems {
		if p.Service.App != mine {
			t.Fatalf("it tells of %s, which it does not serve", p.Service)
		}
	}
}

// TestAuditOfIngress: what contradicts itself is found.
func TestAuditOfIngress(t *testing.T) {
	shop := skerry.AppKey{Namespace: "acme", Name: "shop"}
	for want, spoil := range map[string]func(g *Ingress){
		"acme/shop 80 a.example is not in the order of those who came": func(g *Ingress) { clear(g.record.Orders) },
		"acme/shop 80 b.example is refused, and nobody asks for it":    func(g *Ingress) { g.refused[shop] = map[string]string{"80 b.example": "no"} },
		"acme/none is listed, and asks for nothing":                    func(g *Ingress) { g.asked[skerry.AppKey{Namespace: "acme", Name: "none"}] = nil },
		"w9 is gone, and tells of an ingress":                          func(g *Ingress) { g.states["w9"] = &wire.IngressState{} },
	} {
		h := newHarbour(t)
		h.do("ask", []string{"acme/shop", "a.example:80/"})
		known := func(string) bool { return false }
		if faults := h.g.Audit(known); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(h.g); !slices.Contains(h.g.Audit(known), want) {
			t.Errorf("%v, want %q among them", h.g.Audit(known), want)
		}
	}
}
