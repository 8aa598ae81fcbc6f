package artifact

import (
	"fmt"
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Platform is an operating system and an architecture in Go's words, with a variant where there are several ("v7" for
// 32-bit arm). The zero value means any.
type Platform struct {
	OS      string `json:"os"`
	Arch    string `json:"architecture"`
	Variant string `json:"variant,omitempty"`
}

// HostPlatform is where this program runs.
func HostPlatform() Platform {
	p := Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if p.Arch == "arm" {
		p.Variant = "v7"
	}
	return p
}

// WasmPlatform is that of WebAssembly modules with WASI preview 1. What others write as wasi/wasm is the same.
func WasmPlatform() Platform { return Platform{OS: "wasip1", Arch: "wasm"} }

// BarePlatform is that of kernels that are a whole program, for machines of another platform.
func BarePlatform(p Platform) Platform { return Platform{OS: bareOS, Arch: p.Arch, Variant: p.Variant} }

// bareOS is the operating system of what needs none.
const bareOS = "none"

// ParsePlatform reads OS/ARCH[/VARIANT], or ARCH alone for linux.
func ParsePlatform(s string) (Platform, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 1 {
		parts = []string{"linux", s}
	}
	p := Platform{OS: parts[0], Arch: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	for _, part := range parts {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(parts) > 3 {
			return Platform{}, fmt.Errorf("platform %q is not valid; write it as linux/arm64 or linux/arm/v7", s)
		}
	}
	return p.normal(), nil
}

func (p Platform) String() string {
	if p == (Platform{}) {
		return "any platform"
	}
	s := p.OS + "/" + p.Arch
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

func (p Platform) normal() Platform {
	switch p.Arch {
	case "x86_64":
		p.Arch = "amd64"
	case "aarch64":
		p.Arch = "arm64"
	case "armhf":
		p.Arch, p.Variant = "arm", "v7"
	case "wasm", "wasm32":
		if p.OS == "wasi" || p.OS == "wasip1" {
			p.OS, p.Arch = "wasip1", "wasm"
		}
	}
	if p.Arch == "arm64" && p.Variant == "v8" || p.Arch == "amd64" && p.Variant == "v1" {
		p.Variant = ""
	}
	return p
}

func fromSpec(p *ocispec.Platform) Platform {
	if p == nil {
		return Platform{}
	}
	return Platform{OS: p.OS, Arch: p.Architecture, Variant: p.Variant}.normal()
}

// runs says how well something built for other suits p: 0 not at all, higher is better.
func (p Platform) runs(other Platform) int {
	p, other = p.normal(), other.normal()
	switch {
	case p == Platform{}:
		return 1
	case p == WasmPlatform() && other == Platform{}:
		return 1 // whoever puts a module into an image may have nothing to say of machines
	case p.OS != other.OS || p.Arch != other.Arch:
		return 0
	case p.Variant == other.Variant:
		return 100
	case other.Variant == "":
		return 50
	case p.Variant == "":
		return 1
	case p.Arch == "arm" && other.Variant < p.Variant, p.Arch == "amd64" && other.Variant < p.Variant:
		return 10 + int(other.Variant[len(other.Variant)-1]-'0') // an older variant runs on a newer one
	}
	return 0
}
