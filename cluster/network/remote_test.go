package network

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// farHome is a site with addresses of 10.70.0.0/20 and a host in 10.80.0.0/16.
type farHome struct {
	reached map[string]bool
	changed []string
}

func (h *farHome) Owns(p netip.Prefix) bool { return netip.MustParsePrefix("10.70.0.0/20").Overlaps(p) }
func (h *farHome) Pool() netip.Prefix       { return netip.MustParsePrefix("10.64.0.0/10") }
func (h *farHome) Networks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.80.0.0/16")}
}
func (h *farHome) Reached(w string) bool { return h.reached[w] }
func (h *farHome) Changed(w string)      { h.changed = append(h.changed, w) }

// TestRemoteScenarios runs testdata/remote/*.txt. Each line is a command, and after "=>" what is seen then:
//
//	introduce SITE PREFIX...      extents that it has, how many were refused
//	route SITE SERVICE N=ADDR...  instances at workers N of a site; none: nowhere
//	users SITE N>TO...            workers N of a site have routes to workers TO here
//	leave SITE, route-leads W, nobody-reaches W, pass DURATION, restart
//	numbers                       workers that have a number
//	backends SERVICE              instances at other sites
//	told TO                       workers of other sites that a worker here is told of
func TestRemoteScenarios(t *testing.T) {
	files, err := os.ReadDir("testdata/remote")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			text, err := os.ReadFile("testdata/remote/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			home := &farHome{reached: map[string]bool{}}
			r, now := NewRemote(home), time.Unix(1e9, 0)
			for n, line := range strings.Split(string(text), "\n") {
				line, want, seen := strings.Cut(line, "=>")
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "#" {
					continue
				}
				got := ""
				switch words[0] {
				case "introduce":
					before := r.Refused()[RefusedExtents]
					s := wire.SiteInfo{Name: skerry.ClusterName(words[1])}
					for _, w := range words[2:] {
						s.Extents = append(s.Extents, netip.MustParsePrefix(w))
					}
					r.Introduce(s)
					got = fmt.Sprint(r.Site(words[1]).Extents, " refused ", r.Refused()[RefusedExtents]-before)
				case "leave":
					r.Leave(words[1])
				case "route":
					k := skerry.ServiceKey{Service: words[2]}
					route := &wire.RemoteRoute{Route: wire.Route{Service: k}}
					for _, w := range words[3:] {
						var id wire.PeerID
						id, addr := peerOf(t, w, "=")
						a := netip.MustParseAddr(addr)
						route.Route.Backends = append(route.Route.Backends, wire.RouteBackend{Peer: id, Addr: a})
						route.Peers = append(route.Peers, wire.RemotePeer{ID: id, Prefixes: []netip.Prefix{netip.PrefixFrom(a, 26).Masked()}})
					}
					if len(words) == 3 {
						route = nil
					}
					r.SetRoute(words[1], k, route)
				case "users":
					users := &wire.RemotePeers{}
					for _, w := range words[2:] {
						id, to := peerOf(t, w, ">")
						p := wire.RemotePeer{ID: id}
						for _, x := range strings.Split(to, ",") {
							p.To = append(p.To, number(t, x))
						}
						users.Peers = append(users.Peers, p)
					}
					concerned := r.SetUsers(words[1], users)
					slices.Sort(concerned)
					got = fmt.Sprint(slices.Compact(concerned))
				case "route-leads":
					home.reached[words[1]] = true
				case "nobody-reaches":
					delete(home.reached, words[1])
				case "pass":
					d, err := time.ParseDuration(words[1])
					if err != nil {
						t.Fatal(err)
					}
					for end := now.Add(d); now.Before(end); {
						now = now.Add(time.Minute)
						r.Forget(now)
					}
				case "restart":
					next := NewRemote(home)
					next.Load(r.Numbers())
					r = next
				case "numbers":
					list := []string{}
					for name, id := range r.Numbers().Remote {
						list = append(list, fmt.Sprintf("%s=%d", name, id-RemoteFirst))
					}
					slices.Sort(list)
					got = fmt.Sprint(list)
				case "backends":
					list := []string{}
					for _, b := range r.Backends(skerry.ServiceKey{Service: words[1]}) {
						list = append(list, fmt.Sprintf("%s@%s", b.Addr, b.Worker))
					}
					got = fmt.Sprint(list)
				case "told":
					got = fmt.Sprint(r.Users(number(t, words[1]), func(site string) bool { return site != "shut" }))
				default:
					t.Fatalf("%s:%d: %q", f.Name(), n+1, line)
				}
				if want = strings.TrimSpace(want); seen && want != got {
					t.Errorf("%s:%d: %s=> %s, want %s", f.Name(), n+1, line, got, want)
				}
				if faults := r.Audit(); len(faults) > 0 {
					t.Errorf("%s:%d: %s: %v", f.Name(), n+1, line, faults)
				}
			}
		})
	}
}

func number(t *testing.T, s string) (id wire.PeerID) {
	t.Helper()
	if _, err := fmt.Sscan(s, &id); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return id
}

func peerOf(t *testing.T, word, sep string) (wire.PeerID, string) {
	t.Helper()
	n, rest, ok := strings.Cut(word, sep)
	if !ok {
		t.Fatalf("%q has no %q", word, sep)
	}
	return number(t, n), rest
}

// TestRemoteBounds: a site that names ever new workers is cut short, and counted; a worker here is told of a bounded number.
func TestRemoteBounds(t *testing.T) {
	r := NewRemote(&farHome{})
	users := &wire.RemotePeers{}
	for id := range wire.PeerID(MaxRemote + 5) {
		users.Peers = append(users.Peers, wire.RemotePeer{ID: id + 1, To: []wire.PeerID{1}})
	}
	r.SetUsers("b", users)
	if n := r.Refused()[RefusedPeers]; r.Known() != MaxRemote || n != 5 {
		t.Errorf("%d are known, %d refused", r.Known(), n)
	}
	if n := len(r.Users(1, func(string) bool { return true })); n != MaxUsers {
		t.Errorf("a worker is told of %d", n)
	}
	if faults := r.Audit(); len(faults) > 0 {
		t.Error(faults)
	}
	long := &wire.RemoteRoute{Route: wire.Route{Backends: make([]wire.RouteBackend, wire.MaxBackends+1)}}
	if r.SetRoute("b", long.Route.Service, long); len(r.routes) > 0 {
		t.Error("a route with more ends than one may have is taken")
	}
}

// A site that never confirms a route runs an older version; one that does goes on to be asked when it says nothing for a while.
func TestRemoteHeard(t *testing.T) {
	r := NewRemote(nil)
	web := skerry.ServiceKey{Service: "web"}
	expect := func(mail uint64, says bool) {
		t.Helper()
		if m, s := r.Heard("b", web); m != mail || s != says {
			t.Errorf("of the route %d was heard, it says so: %v", m, s)
		}
	}
	r.SetHeard("b", web, nil)
	expect(0, false)
	r.SetHeard("b", web, &wire.HeardRoute{Service: web, Mail: 7})
	expect(7, true)
	r.SetHeard("b", web, nil)
	expect(0, true)
	r.Leave("b")
	expect(0, false)
}
