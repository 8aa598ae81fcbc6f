//go:build linux

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

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
	n, err := MeasureNetwork(t.Context(), NetworkOptions{Program: self, Small: true, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	want := metrics()
	if _, err := exec.LookPath("iperf3"); err != nil {
		want = slices.DeleteFunc(want, func(m metric) bool { return slices.Contains([]string{"tcp1", "tcp8", "cpu"}, m.name) })
	}
	if len(n.Wires) != 2 {
		t.Fatalf("%d wires", len(n.Wires))
	}
	for _, w := range n.Wires {
		if len(w.Cases) != map[string]int{"gso": len(cases()), "mtu": 3}[w.Wire] {
			t.Errorf("%s: %d cases", w.Wire, len(w.Cases))
		}
		for _, c := range w.Cases {
			if c.Name == caseKernel && lacksWireGuard(c.Skip) {
				continue
			}
			if c.Skip != "" {
				t.Errorf("%s, %s is skipped: %s", w.Wire, c.Name, c.Skip)
				continue
			}
			for _, m := range want {
				f, ok := c.Figures[m.name]
				if (m.name == "udp" || m.name == "tcp8") && ok && f.Median >= 0 {
					continue // a step this short may lose something at any rate, and eight streams may not all begin in it
				}
				if !ok || f.Median <= 0 || f.N != 1 || f.Ratio < 0 {
					t.Errorf("%s, %s, %s: %+v", w.Wire, c.Name, m.name, f)
				}
			}
		}
	}
	for _, s := range n.Skipped {
		if !strings.Contains(s, "only with --full") && !strings.Contains(s, "not installed") && !strings.Contains(s, "eight streams") && !lacksWireGuard(s) {
			t.Errorf("not measured: %s", s)
		}
	}
	if len(n.Replicas) != 5 || n.Routes == nil || n.Routes.Services != 200 {
		t.Errorf("replicas %+v, routes %+v", n.Replicas, n.Routes)
	}
	for _, r := range n.Replicas {
		if r.Least != 10 || r.Most != 10 {
			t.Errorf("%s: instances were asked %d to %d times, and should have been 10 times each", r.Case, r.Least, r.Most)
		}
	}
	var out bytes.Buffer
	if err := writeNetwork(&out, n); err != nil || !strings.Contains(out.String(), "sealed") {
		t.Error(err, out.String())
	}
	t.Log(out.String())
	for name, svg := range networkPlots(n) {
		wellFormed(t, name, []byte(svg))
	}
	if _, err := json.Marshal(n); err != nil {
		t.Error(err)
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
	m := &measurer{NetworkOptions: NetworkOptions{Program: self, Progress: func(s string) { t.Log(s) }, Cases: []string{caseDirect, casePlain, caseSealed}}, out: &Network{},
		lengths: lengths{rounds: 1, delays: []int{4}, loads: 1, flows: 2000}, megabytes: 1, flowLife: time.Second}
	if err := m.downloads(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.flows(t.Context()); err != nil {
		t.Error(err)
	}
	if len(m.out.Downloads) != 3 || len(m.out.Flows) != 2 {
		t.Fatalf("%+v", m.out)
	}
	for _, d := range m.out.Downloads {
		if d.Seconds < 0.008 { // a handshake and an answer
			t.Errorf("%+v", d)
		}
	}
	for _, f := range m.out.Flows {
		if len(f.Cycles) != 2 {
			t.Errorf("%+v", f)
		}
		for _, c := range f.Cycles {
			if c.Flows == 0 || c.Flows > 2000 || c.Left != 0 || c.Refused != 0 { // on a slow machine the first expire while the last come
				t.Errorf("%s: %+v", f.Protocol, c)
			}
			t.Logf("%s: %+v", f.Protocol, c)
		}
	}
}

func TestFigures(t *testing.T) {
	f := figureOf([]float64{1, math.NaN(), 3}, []float64{2, 2, 2})
	if f.Median != 2 || f.N != 2 || f.Ratio != 1 || len(f.ratios) != 2 {
		t.Errorf("%+v", f)
	}
	if f := figureOf([]float64{math.NaN()}, nil); f.N != 0 || f.Median != 0 {
		t.Errorf("%+v", f)
	}
}

func TestNetworkBudgets(t *testing.T) {
	n := &Network{}
	for _, wire := range []string{"gso", "mtu"} {
		w := NetWire{Wire: wire}
		for name, rate := range map[string]float64{caseDirect: 10, casePlain: 8, caseSealed: 5.5, caseWireguard: 3} {
			w.Cases = append(w.Cases, NetCase{Name: name, samples: map[string][]float64{"tcp1": {rate, rate}, "udp64": {10 / rate, 10 / rate}}})
		}
		w.fold()
		n.Wires = append(n.Wires, w)
	}
	by := map[string]Result{}
	for _, r := range fold(networkBudgets(n), "") {
		by[r.Name] = r
	}
	for name, want := range map[string]bool{"overlay.tcp.gso": false, "overlay.tcp.mtu": true, "overlay.tcp.default": false, "overlay.rtt": true} {
		if r := by[name]; r.Met == nil || *r.Met != want || r.Context == "" {
			t.Errorf("%+v", r)
		}
	}
	if r := by["overlay.tcp.default"]; *r.Value != 0.55 { // but less than twice wireguard-go
		t.Errorf("%+v", r)
	}
	for name, s := range networkBudgets(&Network{Skipped: []string{"gso plain: no BPF"}}) {
		if s.err == nil || s.err.Error() != "gso plain: no BPF" {
			t.Errorf("%s: %+v", name, s)
		}
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
