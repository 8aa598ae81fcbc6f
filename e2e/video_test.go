//go:build linux && amd64

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What emulated processors bear. The tracking needs five pictures of each second that is filmed to hold on to an object that turns round: with a film
// that is ten times slower than life, one in two seconds.
const (
	videoSize = "160x96"
	videoRate = "2"
	videoSlow = "10"
	// Of each placement; the tracking tells its statistics every five seconds.
	videoPictures = 60
)

// videoStages are the services of examples/video/mix.yaml, as pictures pass them.
var videoStages = []string{"source", "aggregate", "detect", "track"}

// videoStats are what the tracking tells, as examples/video/stats.go has it.
type videoStats struct {
	Pictures     int
	Rate, Recall float64
	Switches     int
	Median, High map[string]float64
}

// TestVideoOnThreeArchitectures runs the pipeline of examples/video over a site whose workers are amd64 (this machine), arm64 and riscv64 (machines
// with kernels of Debian's), as examples/video/README.md tells: one image for all three, and a manifest that says which stage goes where, here with
// pictures that are small enough for emulated processors. The stages then change places, so that each of them runs on each architecture; the same
// on amd64 alone is what these are beside. Each time the objects have to be followed.
func TestVideoOnThreeArchitectures(t *testing.T) {
	testenv.Long(t, "TestWorkersOfOtherArchitectures and those of examples/video")
	address := map[string]string{"amd64": "198.51.100.1", "arm64": "198.51.100.2", "riscv64": "198.51.100.3"}
	connect(t, address["amd64"])
	s := (&site{t: t, address: address["amd64"], patience: 10 * time.Minute}).open()
	s.timeServer("198.51.100.1:123")
	began := time.Now()
	var consoles []string
	for _, arch := range []string{"arm64", "riscv64"} {
		consoles = append(consoles, s.guest(arch, address[arch]))
	}
	archOf := map[skerry.WorkerName]string{}
	s.await("three architectures have joined", func() bool {
		list, _ := s.Cluster.Workers(t.Context())
		for _, w := range list {
			if w.Connected && w.Facts != nil {
				archOf[w.Name] = w.Facts.Arch
			}
		}
		return len(archOf) == len(address)
	})
	t.Logf("%.0f s: %v have joined", time.Since(began).Seconds(), slices.Sorted(maps.Values(archOf)))
	sk, look := s.commandLine()
	for arch := range address {
		program := filepath.Join(t.TempDir(), "video")
		buildFor(t, arch, program, "skerry.dev/skerry/examples/video")
		sk("image", "build", program, "-t", "examples/video:1", "--add-platform", "-q")
	}
	sk("image", "push", "examples/video:1", "-q")
	manifest, err := os.ReadFile("../examples/video/mix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(manifest)
	for old, new := range map[string]string{"-size, 640x360": "-size, " + videoSize, `-rate, "10"`: `-rate, "` + videoRate + `"`, `-slow, "1"`: `-slow, "` + videoSlow + `"`} {
		if !strings.Contains(text, old) {
			t.Fatalf("mix.yaml does not say %s", old)
		}
		text = strings.ReplaceAll(text, old, new)
	}
	var table strings.Builder
	table.WriteString("\n| " + strings.Join(videoStages, " | ") + " | pictures/s | transport, ms | handing, ms | detection, ms | tracking, ms | total, ms | total, 95th, ms | objects followed |\n|" + strings.Repeat("---|", len(videoStages)+8) + "\n")
	for _, run := range []struct {
		name string
		on   map[string]string // in place of the architecture that the manifest says
	}{
		{"alone", map[string]string{"amd64": "amd64", "arm64": "amd64", "riscv64": "amd64"}},
		{"mix", map[string]string{"amd64": "amd64", "arm64": "arm64", "riscv64": "riscv64"}},
		{"turned", map[string]string{"amd64": "arm64", "arm64": "riscv64", "riscv64": "amd64"}},
		{"again", map[string]string{"amd64": "riscv64", "arm64": "amd64", "riscv64": "arm64"}},
	} {
		placed := regexp.MustCompile(`arch: \[(\w+)\]`).ReplaceAllStringFunc(text, func(m string) string {
			return "arch: [" + run.on[m[len("arch: ["):len(m)-1]] + "]"
		})
		got, at := s.video(sk, look, run.name, placed, archOf)
		t.Logf("%.0f s: %s: %s: %+v", time.Since(began).Seconds(), run.name, strings.Join(at, ", "), got)
		fmt.Fprintf(&table, "| %s | %.2f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f %% |\n", strings.Join(at, " | "), got.Rate,
			got.Median["transport"], got.Median["handing"], got.Median["detection"], got.Median["tracking"], got.Median["total"], got.High["total"], 100*got.Recall)
	}
	t.Log(table.String())
	for n, arch := range []string{"arm64", "riscv64"} {
		t.Logf("%s: %s", arch, clocks(t, consoles[n]))
	}
}

// video runs the pipeline as a manifest says until enough pictures have passed all of it, and gives what the tracking tells and the architecture
// on which each stage ran.
func (s *site) video(sk, look func(...string) string, name, manifest string, archOf map[skerry.WorkerName]string) (got videoStats, at []string) {
	t := s.t
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(manifest, "{name: mix}", "{name: "+name+"}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	sk("apply", "-f", file, "--timeout", "5m")
	for deadline := time.Now().Add(s.patience); got.Pictures < videoPictures; time.Sleep(10 * time.Second) {
		// The last line, and what came while it was read; nothing when a busy worker was out of touch for a moment.
		lines := strings.Split(strings.TrimSpace(look("logs", name+"/track", "--tail", "1")), "\n")
		if last := lines[len(lines)-1]; last != "" {
			if err := json.Unmarshal([]byte(last), &got); err != nil {
				t.Fatalf("the tracking tells %q: %v", last, err)
			}
		}
		if time.Now().After(deadline) {
			s.dump()
			t.Fatalf("%s: pictures do not flow: %+v\n%s", name, got, look("logs", name))
		}
	}
	// Where the stages are is known at the site, and to nobody above it.
	var list struct{ Items []wire.Instance }
	if err := json.Unmarshal([]byte(sk("--context", "site", "get", "instances", "--app", name, "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	t.Logf("skerry get instances -o wide:\n%s", sk("--context", "site", "get", "instances", "--app", name, "-o", "wide"))
	on := map[string]string{}
	for _, i := range list.Items {
		on[i.Service.Service] = archOf[i.Worker]
	}
	var app spec.Application
	if err := yaml.Unmarshal([]byte(manifest), &app); err != nil {
		t.Fatal(err)
	}
	for _, stage := range app.Spec.Services {
		at = append(at, on[stage.Name])
		if on[stage.Name] != stage.Placement.Arch[0] {
			t.Errorf("%s: %s runs on %q, and should on %v", name, stage.Name, on[stage.Name], stage.Placement.Arch)
		}
	}
	if got.Recall < 0.9 || got.Rate <= 0 || got.Median["detection"] <= 0 {
		t.Errorf("%s: %+v", name, got)
	}
	sk("delete", "app", name, "--wait")
	return got, at
}

// timeServer tells guests the time by SNTP (RFC 5905, section 14) until the end of the test.
func (s *site) timeServer(address string) {
	t := s.t
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.time = address
	done := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	stamp := func(b []byte, at time.Time) {
		binary.BigEndian.PutUint64(b, uint64(at.Unix()+2208988800)<<32|uint64(at.Nanosecond())<<32/1e9)
	}
	go func() {
		defer close(done)
		var b [64]byte
		for {
			n, from, err := conn.ReadFrom(b[:])
			if err != nil {
				return
			}
			came := time.Now()
			if n != 48 || b[0]&7 != 3 {
				continue
			}
			var a [48]byte
			a[0], a[1] = 4<<3|4, 1 // version 4, a server, whose clock is the measure
			copy(a[24:], b[40:48])
			stamp(a[32:], came)
			stamp(a[40:], time.Now())
			_, _ = conn.WriteTo(a[:], from)
		}
	}()
}

// clocks tells from a guest's console how wrong its clock was found to be after it had been set first.
func clocks(t *testing.T, console string) string {
	t.Helper()
	text, err := os.ReadFile(console)
	if err != nil {
		t.Fatal(err)
	}
	var off, open time.Duration
	found := regexp.MustCompile(`clock off (-?\d+) open (\d+)\b`).FindAllStringSubmatch(string(text), -1)
	for _, m := range found[min(1, len(found)):] {
		a, _ := strconv.ParseInt(m[1], 10, 64)
		b, _ := strconv.ParseInt(m[2], 10, 64)
		off, open = max(off, time.Duration(a).Abs()), max(open, time.Duration(b))
	}
	if len(found) < 2 {
		t.Errorf("the clock was looked at %d times", len(found))
	}
	return fmt.Sprintf("the clock was looked at %d times, was off by %v at most, and %v at most was left open", len(found), off, open)
}
