//go:build linux

package bpf

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"unsafe"

	"skerry.dev/skerry/overlay/internal/planetest"
)

// What is committed was built from the sources that are committed.
func TestObjectIsBuilt(t *testing.T) {
	h := sha256.New()
	for _, f := range []string{"c/maps.h", "c/packet.h", "c/flow.h", "c/neighbour.h", "c/link.h", "c/plain.h", "c/way.h", "c/overlay.c"} {
		b, err := os.ReadFile(f)
		planetest.Must(t, err)
		h.Write(b)
	}
	want, err := os.ReadFile("c/built.sha256")
	planetest.Must(t, err)
	if got := hex.EncodeToString(h.Sum(nil)); got != strings.TrimSpace(string(want)) {
		t.Errorf("the sources in c/ have changed; run go generate ./overlay/bpf, with clang-19, llvm-strip and libbpf-dev")
	}
}

func TestLayout(t *testing.T) {
	spec, err := loadProg()
	planetest.Must(t, err)
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
