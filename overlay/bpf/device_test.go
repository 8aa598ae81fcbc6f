//go:build linux

package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// A service address leads to instances here and on the other host, of both families, by all protocols, and the client
// sees nothing but the service address.
func TestServiceAddress(t *testing.T) {
	t.Parallel()
	for how, name := range map[way]string{plain4: "plain4", plain6: "plain6"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, how)
			client := w.inst("a1")
			w.inst("b1").serve(80)
			w.inst("a2").serve(80)
			w.hosts[0].service(7, 1, w.inst("b1"))
			w.hosts[0].service(7, 2, w.inst("a2"))
			for last, want := range map[byte]string{1: "b1", 2: "a2"} {
				for _, six := range []bool{false, true} {
					for _, network := range []string{"tcp", "udp"} {
						for range 3 {
							if got, err := client.ask(network, svc(last, six), 80); err != nil || got != want {
								t.Errorf("%s %s: %q, %v, want %s", network, svc(last, six), got, err, want)
							}
						}
					}
					for _, size := range []int{8, 1000} {
						if err := client.ping(svc(last, six), size); err != nil {
							t.Errorf("%s: %v", want, err)
						}
					}
				}
			}
			// Without a service address in between.
			for _, six := range []bool{false, true} {
				for _, to := range []string{"b1", "a2"} {
					if got, err := client.ask("tcp", w.inst(to).addr(six), 80); err != nil || got != to {
						t.Errorf("%s: %q, %v", to, got, err)
					}
				}
				if err := client.ping(w.hosts[0].gateway(six), 8); err != nil {
					t.Errorf("gateway: %v", err)
				}
			}
			if w.hosts[0].count("local") == 0 || w.hosts[0].count("to-plain") == 0 || w.hosts[1].count("from-plain") == 0 || w.hosts[0].count("new-flow") == 0 {
				t.Error("packets took another way than that of the programs")
			}
			if t.Failed() {
				for _, h := range w.hosts {
					s, _ := h.dev.Stats()
					t.Logf("host %d: %+v", h.n, s)
				}
			}
		})
	}
}

// What is committed was built from the sources that are committed.
func TestObjectIsBuilt(t *testing.T) {
	h := sha256.New()
	for _, f := range []string{"c/maps.h", "c/packet.h", "c/flow.h", "c/neighbour.h", "c/link.h", "c/plain.h", "c/way.h", "c/overlay.c"} {
		b, err := os.ReadFile(f)
		must(t, err)
		h.Write(b)
	}
	want, err := os.ReadFile("c/built.sha256")
	must(t, err)
	if got := hex.EncodeToString(h.Sum(nil)); got != strings.TrimSpace(string(want)) {
		t.Errorf("the sources in c/ have changed; run go generate ./overlay/bpf, with clang-19, llvm-strip and libbpf-dev")
	}
}

func TestLayout(t *testing.T) {
	spec, err := loadProg()
	must(t, err)
	for name, size := range map[string][2]uintptr{
		"config":    {4, unsafe.Sizeof(configValue{})},
		"services":  {unsafe.Sizeof(serviceKey{}), unsafe.Sizeof(serviceValue{})},
		"instances": {unsafe.Sizeof(address{}), unsafe.Sizeof(instanceValue{})},
		"cables":    {4, 4},
		"foreign":   {unsafe.Sizeof(foreignKey{}), 1},
		"routes":    {unsafe.Sizeof(routeKey{}), unsafe.Sizeof(routeValue{})},
		"peers":     {4, unsafe.Sizeof(peerValue{})},
		"tags":      {unsafe.Sizeof(tagKey{}), 4},
		"prefixes":  {unsafe.Sizeof(address{}), 4},
		"shares":    {unsafe.Sizeof(address{}), unsafe.Sizeof(shareValue{})},
		"all":       {4, unsafe.Sizeof(shareValue{})},
		"tcp":       {unsafe.Sizeof(flowKey{}), unsafe.Sizeof(flowValue{})},
		"other":     {unsafe.Sizeof(flowKey{}), unsafe.Sizeof(flowValue{})},
	} {
		m := spec.Maps[name]
		if uintptr(m.KeySize) != size[0] || uintptr(m.ValueSize) != size[1] {
			t.Errorf("table %s: %d and %d bytes in C, %v in Go", name, m.KeySize, m.ValueSize, size)
		}
	}
	if counterNames()[counterNewFlow] != "new-flow" {
		t.Errorf("counter %d is %s", counterNewFlow, counterNames()[counterNewFlow])
	}
	if got := int(spec.Maps["counters"].MaxEntries); got != len(counterNames()) {
		t.Errorf("%d counters have %d names", got, len(counterNames()))
	}
}
