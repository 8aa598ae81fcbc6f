package devices

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"

	"skerry.dev/skerry/spec"
)

// responderVar has the test binary answer in a network, as a camera does: its value is the kind.
const responderVar = "SKERRY_TEST_RESPONDER"

// Where the worker and the camera are in the network of the tests.
const (
	workerIP = "10.99.0.1/24"
	cameraIP = "10.99.0.2"
)

// respond is the camera: it answers each question with what is no answer, and then with one.
func respond(kind string) int {
	in, out := bufio.NewReader(os.Stdin), os.Stdout
	if _, err := in.ReadString('\n'); err != nil { // its interface is there
		return 1
	}
	link, err := netlink.LinkByName("camera")
	if err == nil {
		var a *netlink.Addr
		if a, err = netlink.ParseAddr(cameraIP + "/24"); err == nil {
			err = netlink.AddrAdd(link, a)
		}
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	var conn *net.UDPConn
	if err == nil {
		group := groupONVIF()
		if kind == KindMDNS {
			group = groupMDNS()
		}
		conn, err = net.ListenMulticastUDP("udp4", &net.Interface{Index: link.Attrs().Index, Name: "camera"}, group)
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	fmt.Fprintln(out, "ready")
	buf := make([]byte, maxAnswer)
	for {
		n, from, err := conn.ReadFromUDP(buf)
		if err != nil {
			return 1
		}
		answers := [][]byte{[]byte("garbage"), nil, {0xff}}
		if kind == KindMDNS {
			var p dnsmessage.Parser
			if _, err := p.Start(buf[:n]); err != nil {
				continue
			}
			if q, err := p.Question(); err == nil && q.Name.String() == "_rtsp._tcp.local." && q.Type == dnsmessage.TypePTR {
				answers = append(answers, mdnsAnswer("Dock 4._rtsp._tcp.local.", 8554, "path=live"))
			}
		} else if strings.Contains(string(buf[:n]), "NetworkVideoTransmitter") {
			answers = append(answers, onvifAnswer("http://192.0.2.9/onvif"), onvifAnswer("http://"+cameraIP+"/onvif/device_service"))
		}
		for _, a := range answers {
			_, _ = conn.WriteToUDP(a, from)
		}
	}
}

func mdnsAnswer(instance string, port uint16, text string) []byte {
	service := dnsmessage.MustNewName("_rtsp._tcp.local.")
	name := dnsmessage.MustNewName(instance)
	head := func(n dnsmessage.Name) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: n, Class: dnsmessage.ClassINET, TTL: 120}
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true, Authoritative: true},
		Answers: []dnsmessage.Resource{{Header: head(service), Body: &dnsmessage.PTRResource{PTR: name}}},
		Additionals: []dnsmessage.Resource{
			{Header: head(name), Body: &dnsmessage.SRVResource{Port: port, Target: dnsmessage.MustNewName("elsewhere.example.")}},
			{Header: head(name), Body: &dnsmessage.TXTResource{TXT: []string{text}}},
			{Header: head(dnsmessage.MustNewName("elsewhere.example.")), Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 9}}}}}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func onvifAnswer(xaddrs string) []byte {
	return []byte(`<?xml version="1.0"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"
 xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"
 xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing">
<s:Body><d:ProbeMatches><d:ProbeMatch>
<a:EndpointReference><a:Address>urn:uuid:4d454930-0000-1000-8000-001122334455</a:Address></a:EndpointReference>
<d:Types>dn:NetworkVideoTransmitter</d:Types>
<d:Scopes>onvif://www.onvif.org/hardware/P3245 onvif://www.onvif.org/name/ACME%20Corp</d:Scopes>
<d:XAddrs>` + xaddrs + `</d:XAddrs></d:ProbeMatch></d:ProbeMatches></s:Body></s:Envelope>`)
}

// TestListen asks in a network of two hosts. What answers there, in a process of its own, is found at its own address, whatever else
// it says.
func TestListen(t *testing.T) {
	for text, want := range map[string]string{
		"camera=mdns,interface=net0,service=_rtsp._tcp": "camera=dock-4 at rtsp://" + cameraIP + ":8554/live",
		"camera=onvif,interface=net0,model=P3245": "camera=4d454930-0000-1000-8000-001122334455 at http://" +
			cameraIP + "/onvif/device_service",
		"camera=onvif,interface=net0,model=of-somebody-else":  "",
		"camera=mdns,interface=net0,service=_axis-video._tcp": "",
	} {
		t.Run(text, func(t *testing.T) {
			rule, err := ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			camera(t, rule.Kind)
			if want == "" {
				got, _, err := ask(t.Context(), &rule)
				if got = Offer(got, []Rule{rule}); err != nil || len(got) > 0 {
					t.Errorf("found %q (%v), want nothing", ids(got), err)
				}
				return
			}
			ctx, stop := context.WithCancel(t.Context())
			heard, done := make(chan []Device, 1), make(chan struct{})
			go func() {
				defer close(done)
				Listen(ctx, rule, nil, func(list []Device) { heard <- list; stop() }, func(err error) { t.Errorf("asking failed: %v", err) })
			}()
			list := <-heard
			<-done
			if len(list) != 1 || list[0].ID()+" at "+list[0].Address != want {
				t.Errorf("heard %+v, want %s", list, want)
			}
		})
	}
	rule := Rule{Class: "camera", Kind: KindONVIF, Interface: "nonesuch"}
	if _, _, err := ask(t.Context(), &rule); err == nil || !strings.Contains(err.Error(), "nonesuch") {
		t.Errorf("an interface that is not there gives %v, want an error that names it", err)
	}
}

// camera starts what answers, at the other end of a cable.
func camera(t *testing.T, kind string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net0"}, PeerName: "camera"}
	must(netlink.LinkAdd(cable))
	t.Cleanup(func() { _ = netlink.LinkDel(cable) })
	near, err := netlink.LinkByName("net0")
	must(err)
	address, err := netlink.ParseAddr(workerIP)
	must(err)
	must(netlink.AddrAdd(near, address))
	must(netlink.LinkSetUp(near))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), responderVar+"="+kind)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	must(err)
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	far, err := netlink.LinkByName("camera")
	must(err)
	must(netlink.LinkSetNsPid(far, cmd.Process.Pid))
	_, err = in.Write([]byte("\n"))
	must(err)
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "ready\n" {
		t.Fatalf("the camera said %q (%v), want that it is ready", said, err)
	}
}

// Who is silent for a round or two is still there, and for longer in rounds of which not all answers were read; who moves has another
// address once it is silent at the first one; and two of one name are told apart by their places, but the first one keeps it.
func TestRounds(t *testing.T) {
	at := func(name, address string) Device {
		return Device{Class: "camera", Name: name, Address: address, Labels: labels(LabelPlace, strings.TrimPrefix(address, "rtsp://"))}
	}
	first, moved, other := at("a", "rtsp://10.0.0.1"), at("a", "rtsp://10.0.0.2"), at("a", "rtsp://10.0.0.3")
	const both = "camera=a@rtsp://10.0.0.1 camera=a-at-10.0.0.2@rtsp://10.0.0.2"
	const asOne = "camera=a@rtsp://10.0.0.2"
	n := networkOf(nil)
	for i, c := range []struct {
		answers []Device
		part    bool
		want    string
		changed bool
	}{
		{nil, false, "", false},
		{[]Device{first, first}, false, "camera=a@rtsp://10.0.0.1", true},
		{nil, false, "camera=a@rtsp://10.0.0.1", false},
		{[]Device{moved}, false, "camera=a@rtsp://10.0.0.1", false}, // perhaps somebody else who knows the name
		{[]Device{moved, first}, false, both, true},
		{[]Device{moved}, false, both, false},
		{[]Device{first}, false, both, false},
		{nil, true, both, false}, {nil, true, both, false}, {nil, true, both, false}, {nil, true, both, false}, // a flood
		{nil, false, both, false},
		{nil, false, both, false},
		{nil, false, "camera=a@rtsp://10.0.0.1", true},
		{[]Device{moved}, false, asOne, true}, // it has moved
		{[]Device{moved, other}, false, asOne + " camera=a-at-10.0.0.3@rtsp://10.0.0.3", true},
		{[]Device{other}, false, asOne + " camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{[]Device{other}, false, asOne + " camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{[]Device{other}, false, asOne + " camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{[]Device{other}, false, "camera=a-at-10.0.0.3@rtsp://10.0.0.3", true},
		{nil, false, "camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{nil, false, "camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{nil, false, "camera=a-at-10.0.0.3@rtsp://10.0.0.3", false},
		{[]Device{first, moved}, false, "camera=a-at-10.0.0.1@rtsp://10.0.0.1 camera=a-at-10.0.0.2@rtsp://10.0.0.2", true},
	} {
		now, changed := n.round(slices.Clone(c.answers), !c.part)
		var got []string
		for _, d := range now {
			got = append(got, d.ID()+"@"+d.Address)
		}
		if text := strings.Join(got, " "); text != c.want || changed != c.changed {
			t.Errorf("round %d: %q, changed %v; want %q, changed %v", i, text, changed, c.want, c.changed)
		}
	}
}

// One host that has as many devices as there can be leaves room for those of others, also in later rounds.
func TestManyOfOneHost(t *testing.T) {
	at := func(name, place string) Device {
		return Device{Class: "camera", Name: name, Address: "rtsp://" + place, Labels: labels(LabelPlace, place)}
	}
	n := networkOf(nil)
	for round := range 3 {
		var answers []Device
		for i := range spec.MaxDevices {
			answers = append(answers, at(fmt.Sprintf("a%d-%d", round, i), "10.0.0.9"))
		}
		now, _ := n.round(append(answers, at("z", "10.0.0.7")), true)
		if got := ids(now); len(got) != maxOfHost+1 || !slices.Contains(got, "camera=z") {
			t.Errorf("round %d: %d devices, want %d and camera=z", round, len(got), maxOfHost)
		}
	}
}

// Who was known before an agent was restarted is known, and counts as silent only from then on.
func TestKnownFromBefore(t *testing.T) {
	dock := Device{Class: "camera", Name: "dock", Address: "rtsp://10.0.0.1"}
	n := networkOf([]Device{dock})
	for i := range maxSilent {
		if now, changed := n.round(nil, true); len(now) != 1 || changed {
			t.Errorf("in round %d without an answer %q are there, changed %v; want camera=dock, as before", i, ids(now), changed)
		}
	}
	if now, changed := n.round(nil, true); len(now) != 0 || !changed {
		t.Errorf("silent for long %q are there, changed %v; want nobody", ids(now), changed)
	}
}

// A round is not whole when somebody answers without end, or with more devices than are taken.
func TestFloods(t *testing.T) {
	rule := &Rule{Class: "camera", Kind: KindMDNS, Service: "_rtsp._tcp"}
	own := netip.MustParsePrefix(workerIP)
	from, foreign := netip.AddrPortFrom(netip.MustParseAddr(cameraIP), 5353), netip.MustParseAddrPort("192.0.2.9:5353")
	answer := mdnsAnswer("x._rtsp._tcp.local.", 554, "")
	for name, c := range map[string]struct {
		count int
		from  netip.AddrPort
		whole bool
		found int
	}{
		"a few": {3, from, true, 3}, "without end": {maxHeard, from, false, maxHeard}, "of another network": {maxHeard, foreign, false, 0},
	} {
		left := c.count
		out, whole := collect(rule, own, func(buf []byte) (int, netip.AddrPort, error) {
			if left--; left < 0 {
				return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
			}
			return copy(buf, answer), c.from, nil
		})
		if len(out) != c.found || whole != c.whole {
			t.Errorf("%s: %d devices, all of them: %v; want %d, %v", name, len(out), whole, c.found, c.whole)
		}
	}
}

func TestAnswersAreNotBelieved(t *testing.T) {
	from := netip.MustParseAddr(cameraIP)
	for what, got := range map[string][]Device{
		"a path that leads elsewhere":   nonPlain(parseMDNS(mdnsAnswer("x._rtsp._tcp.local.", 554, "path=@evil.example/"), "_rtsp._tcp", from)),
		"no port":                       parseMDNS(mdnsAnswer("x._rtsp._tcp.local.", 0, ""), "_rtsp._tcp", from),
		"another service":               parseMDNS(mdnsAnswer("x._rtsp._tcp.local.", 554, ""), "_http._tcp", from),
		"another host's address":        parseONVIF(onvifAnswer("http://192.0.2.9/"), from),
		"a name in place of an address": parseONVIF(onvifAnswer("http://camera.example/"), from),
		"a password in it":              parseONVIF(onvifAnswer("http://u:p@"+cameraIP+"/"), from),
		"another scheme":                parseONVIF(onvifAnswer("file://"+cameraIP+"/"), from),
		"an entity":                     parseONVIF([]byte(`<!DOCTYPE a [<!ENTITY b "c">]>`+string(onvifAnswer("http://"+cameraIP+"/"))), from),
		"deep elements":                 parseONVIF([]byte(strings.Repeat("<a>", 1000)+strings.Repeat("</a>", 1000)), from),
		"too long":                      parseONVIF([]byte(string(onvifAnswer("http://"+cameraIP+"/"))+strings.Repeat(" ", maxAnswer)), from),
	} {
		if len(got) > 0 {
			t.Errorf("%s: found %+v, want nothing", what, got)
		}
	}
}

// nonPlain are those whose address is more than that of who answered.
func nonPlain(list []Device) []Device {
	return slices.DeleteFunc(list, func(d Device) bool { return d.Address == "rtsp://"+cameraIP+":554" })
}

// Whatever answers, what is made of it has names and labels that can be shown, and an address of who answered.
func FuzzAnswers(f *testing.F) {
	f.Add(mdnsAnswer("Dock 4._rtsp._tcp.local.", 8554, "path=live"))
	f.Add(onvifAnswer("http://" + cameraIP + "/onvif/device_service"))
	from := netip.MustParseAddr(cameraIP)
	f.Fuzz(func(t *testing.T, data []byte) {
		now, _ := networkOf(nil).round(slices.Concat(parseMDNS(data, "_rtsp._tcp", from), parseONVIF(data, from)), true)
		for _, d := range now {
			if !checked(&d) || !strings.HasPrefix(d.Host(), cameraIP) {
				t.Errorf("heard %+v", d)
			}
		}
	})
}
