//go:build linux

package bench

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/overlay/tunnel"
	"skerry.dev/skerry/overlay/wireguard"
)

// The test binary is also the programs that the benchmark starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == node.DatapathCommand {
		os.Exit(tunnel.Main("test", os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "bench" {
		root := &cobra.Command{Use: "skerry"}
		root.AddCommand(Command())
		if err := root.Execute(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testenv.Main(m, testenv.Options{NetNS: true}))
}

// The whole benchmark, with durations that tell nothing. It skips what this machine has no tools for, and nothing else.
func TestNetwork(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n, err := MeasureNetwork(t.Context(), NetworkOptions{Program: self, Small: true, Measuring: report.Measuring{Progress: func(s string) { t.Log(s) }}})
	if err != nil {
		t.Fatal(err)
	}
	want := metrics()
	if _, err := exec.LookPath("iperf3"); err != nil {
		want = slices.DeleteFunc(want, func(m metric) bool { return slices.Contains([]string{"tcp1", "tcp8", "cpu"}, m.name) })
	}
	notes := strings.Join(n.Notes, "\n")
	for wire, names := range map[string][]string{"gso": caseNames(), "mtu": {caseDirect, caseSealed, casePlain}} {
		for _, name := range names {
			if name == caseKernel && lacksWireGuard(notes) {
				continue
			}
			for _, m := range want {
				f := n.Find(wire, m.title, name)
				if (m.name == "udp" || m.name == "tcp8") && (f == nil || f.Value.Value >= 0) {
					continue // a step this short may lose something at any rate, and eight streams may not all begin in it
				}
				if f == nil || f.Value == nil || f.Value.Value <= 0 || f.Value.N != 1 || name != caseDirect && f.Against == nil {
					t.Errorf("%s, %s, %s is %+v", wire, name, m.name, f)
				}
			}
		}
	}
	for _, s := range n.Notes {
		if !strings.Contains(s, "only with --full") && !strings.Contains(s, "not installed") && !strings.Contains(s, "eight streams") && !lacksWireGuard(s) {
			t.Errorf("not measured: %s", s)
		}
	}
	for _, name := range []string{caseNFT, caseVXLAN, caseSealed, casePlain, caseFallback} {
		f := n.Find(groupReplicas, "3 instances, most asked less least", name)
		if f == nil || f.Value == nil || f.Value.Value != 0 || n.Find(groupReplicas, "3 instances, median", name).Value.Value <= 0 {
			t.Errorf("instances behind %s were not asked alike: %+v", name, f)
		}
	}
	if _, err := exec.LookPath("iperf3"); err == nil {
		for _, name := range []string{caseDirect, casePlain, caseSealed} {
			if f := n.Find(groupWrites, "64 B", name); f == nil || f.Value == nil || f.Value.Value <= 0 || f.At != 64 {
				t.Errorf("a stream of small writes of %s is %+v", name, f)
			}
		}
	}
	const group = "200 service addresses of three instances each"
	if f := n.Find(group, "all lead elsewhere", ""); f == nil || f.Value.N != 3 || f.Value.Value <= 0 {
		t.Errorf("tables of addresses took %+v", f)
	}
	var out bytes.Buffer
	if err := n.WriteTable(&out); err != nil || !strings.Contains(out.String(), "sealed") {
		t.Error(err, out.String())
	}
	t.Log(out.String())
	for name, svg := range n.Drawings() {
		wellFormed(t, name, []byte(svg))
	}
	out.Reset()
	if err := n.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	if back, err := report.Read(&out); err != nil || !reflect.DeepEqual(back.Figures, n.Figures) {
		t.Errorf("what is read is not what was written: %v", err)
	}
}

// lacksWireGuard reports whether something was left out because the kernel has no WireGuard, and it has none.
func lacksWireGuard(why string) bool {
	l, err := wireguard.New(wireguard.Options{Worker: "bench-probe", Key: [32]byte{1}})
	if err == nil {
		_ = l.CleanUp()
	}
	_, lacks := errors.AsType[*wireguard.Unsupported](err)
	return lacks && strings.Contains(why, "the kernel has no WireGuard")
}

// The rarer measurements, each as small as it goes.
func TestNetworkExtras(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &measurer{NetworkOptions: NetworkOptions{Program: self, Measuring: report.Measuring{Progress: func(s string) { t.Log(s) }},
		Cases: []string{caseDirect, casePlain, caseSealed}}, out: report.New("network", "", ""),
		lengths: lengths{rounds: 1, delays: []int{4}, loads: 1, flows: 2000}, megabytes: 1, flowLife: time.Second}
	if err := m.downloads(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.flows(t.Context()); err != nil {
		t.Error(err)
	}
	m.out.Fold()
	for _, name := range m.Cases {
		if f := m.out.Find(groupDownloads, "round trip of 4 ms", name); f == nil || f.Value.Value < 0.008 { // a handshake and an answer
			t.Errorf("a download by %s took %+v", name, f)
		}
	}
	for _, proto := range []string{"udp", "tcp"} {
		of := func(name string) []float64 {
			return m.out.Figure("2000 flows at once, left to expire, and again", name, proto).Samples
		}
		// On a slow machine the first expire while the last come.
		if n := of("flows at once"); len(n) != 2 || slices.Min(n) == 0 || slices.Max(n) > 2000 {
			t.Errorf("%s had %v flows at once", proto, n)
		}
		if refused, left := of("refused"), of("left after expiry"); slices.Max(refused) != 0 || slices.Max(left) != 0 {
			t.Errorf("%s refused %v and left %v", proto, refused, left)
		}
	}
}

func TestNetworkBudgets(t *testing.T) {
	n := report.New("network", "", "")
	n.Rounds, n.Disturbed = 2, []report.Mark{{Round: 2, By: "others"}}
	for _, wire := range []string{"gso", "mtu"} {
		for name, rate := range map[string]float64{caseDirect: 10, casePlain: 8, caseSealed: 5.5, caseWireguard: 3} {
			for _, x := range []struct {
				metric string
				v      float64
			}{{"tcp1", rate}, {"udp64", 10 / rate}} {
				f := metricOf(x.metric).figure(n, wire, name)
				f.Rounds, f.Samples = []int{1, 2}, []float64{x.v, x.v}
			}
		}
	}
	n.Fold()
	r := newBudgets("")
	r.Rounds = 7
	networkBudgets(n, r)
	r.Fold()
	for name, want := range map[string]bool{"overlay.tcp.gso": false, "overlay.tcp.mtu": true, "overlay.tcp.default": true,
		"overlay.tcp.wireguard": false, "overlay.rtt": true} {
		f := r.Find("", name, "")
		if f.Value == nil || f.Met() != want || f.About == "" || !slices.Equal(f.Rounds, []int{8, 9}) || f.Value.N != 1 {
			t.Errorf("%s is %+v of rounds %v, met %v: %s", name, f.Value, f.Rounds, f.Met(), f.About)
		}
	}
	if !slices.Equal(r.Disturbed, []report.Mark{{Round: 9, By: "others"}}) || r.Rounds != 9 {
		t.Errorf("disturbed are %+v of %d rounds", r.Disturbed, r.Rounds)
	}
	none, r := report.New("network", "", ""), newBudgets("")
	none.Notes = []string{"gso plain: no BPF"}
	networkBudgets(none, r)
	if f := r.Find("", "overlay.tcp.gso", ""); f.Skip != "gso plain: no BPF" {
		t.Errorf("the reason is %q", f.Skip)
	}
}

func TestNetworkCommand(t *testing.T) {
	for _, args := range [][]string{{"--full", "--quick"}, {"-o", "yaml"}, {"extra"}, {"--case", "carrier-pigeon"}} {
		cmd := networkCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
