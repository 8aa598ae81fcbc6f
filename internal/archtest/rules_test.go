package archtest

// module is the import path of the root package.
const module = "skerry.dev/skerry"

// maxLines is the size at which a file is split.
const maxLines = 600

// imports says which packages of the module each package may import, outside tests. A name that ends in /... covers a
// package and everything below it. "std" in place of a list means the standard library alone; "any" means no limit, for
// the places where things are put together. A new package needs a line here: think about who may know it.
var imports = map[string]string{
	".": "std",

	// pure: decisions, differences, addresses, distances
	"sched":     ". coord",
	"reconcile": ".",
	"ipam":      ".",
	"coord":     ".",
	"credit":    ".",
	"apps":      ". ipam sched reconcile",
	"fleet":     ". reconcile",
	"tenure":    ".",

	// state, identity, transport
	"store":           "",
	"store/storetest": "store",
	"journal":         ".",
	"auth":            ". link/frame store journal",
	"link":            ". link/frame link/beat internal/panics",
	"link/beat":       "internal/panics",
	"link/frame":      ".",
	"link/mqtt":       ". link/frame internal/panics",
	"artifact":        ". internal/owners internal/panics",
	"plugin":          ". sched internal/wasmcode",
	"vault":           ".",

	// roles: Core and Server each
	"root":            ". api apps auth credit fleet internal/loop internal/tier internal/wire internal/execstream journal link overlay/resolver reconcile sched store vault",
	"cluster":         ". cluster/detect cluster/network cluster/trust cluster/volumes ipam overlay/relay api apps auth coord credit fleet internal/loop internal/panics internal/tier internal/wire internal/execstream journal link overlay/resolver reconcile sched store vault",
	"cluster/detect":  ".",
	"cluster/network": ".",
	"cluster/trust":   ". credit",
	"cluster/volumes": ".",
	"worker":          ". artifact auth coord fleet internal/blockdev internal/cdi internal/diskuse internal/loop internal/loopfs internal/owners internal/panics internal/snapshot internal/tier internal/topology internal/wire internal/execstream journal link overlay overlay/hostnet overlay/ingress overlay/resolver overlay/tunnel overlay/wireguard reconcile runtime runtime/lease store vault",

	// how code runs; drivers never see the overlay
	"runtime":              ". runtime/internal/passwd",
	"runtime/internal/...": ". runtime runtime/internal/...",
	"runtime/native":       ". artifact runtime runtime/internal/...",
	"runtime/oci":          ". artifact internal/owners runtime runtime/internal/...",
	"runtime/containerd":   ". runtime runtime/internal/... runtime/oci",
	"runtime/wasm":         ". runtime runtime/internal/... runtime/native internal/wasmcode",
	"runtime/lease":        ". runtime/internal/...",
	"runtime/vm":           ". runtime runtime/internal/... runtime/vm/wire",
	"runtime/vm/guestinit": "runtime/vm/wire",
	"runtime/vm/wire":      "",
	"runtime/runtimetest":  ". internal/blockdev internal/diskuse internal/owners internal/testenv runtime runtime/internal/cgroup",

	"runtime/runtimetest/workload": "",

	"overlay":              ".",
	"overlay/hostnet":      ". overlay/internal/kernel",
	"overlay/bpf":          ". overlay overlay/internal/... internal/panics",
	"overlay/nft":          ". overlay overlay/internal/... internal/panics",
	"overlay/internal/...": "",
	"overlay/wireguard":    ". overlay overlay/relay/frame",
	"overlay/tunnel":       ". overlay overlay/relay/frame internal/panics",
	"overlay/relay":        ". overlay overlay/relay/frame internal/panics",
	"overlay/relay/frame":  ".",
	"overlay/resolver":     ". overlay internal/panics",
	"overlay/ingress":      ". overlay internal/panics",

	// API, client, commands
	"api":        ". apps artifact auth internal/execstream internal/tier journal store runtime web",
	"web":        "std",
	"api/client": ". api apps artifact auth internal/execstream journal runtime",
	"ctl":        ". api api/client apps artifact auth internal/execstream journal runtime store",
	"ctl/...":    ". api api/client apps artifact auth ctl internal/execstream journal runtime store",

	// places that know all parts
	"cmd/...":         "any",
	"internal/node":   "any",
	"lab/...":         "any",
	"bench/...":       "any",
	"bench/published": "",
	"e2e/...":         "any",
	"sim/...":         "any",

	"internal/blockdev":   "",
	"internal/cdi":        ".",
	"internal/diskuse":    "",
	"internal/loop":       ". store",
	"internal/olddata":    "store",
	"internal/loopfs":     "",
	"internal/owners":     "",
	"internal/snapshot":   ".",
	"internal/tier":       ". apps artifact auth internal/execstream internal/loop internal/panics internal/wire journal link link/beat link/mqtt store vault",
	"internal/wire":       ".",
	"internal/succession": ". auth internal/tier link link/frame store tenure vault",
	"internal/execstream": "",
	"internal/life":       "",
	"internal/panics":     "",
	"internal/debugz":     "",
	"internal/upgrade":    ". store",
	"internal/wasmcode":   "",
	"internal/topology":   "",
	"internal/testenv":    "",
	"internal/archtest":   "",

	// programs of their own
	"examples/...": "examples/shop/endpoints examples/video/vision link/mqtt",
	"scripts/...":  "",
}

// roles may be imported only by the places where things are put together, and never by each other.
var roles = []string{"root", "cluster", "worker"}

// pure packages take the time as an argument: no clock, no disk, no socket, no goroutine.
var pure = []string{"sched", "reconcile", "ipam", "coord", "credit", "apps", "fleet", "tenure", "cluster/detect", "cluster/network", "cluster/trust", "cluster/volumes"}

// impureImports may not be imported by pure packages.
var impureImports = []string{"os", "os/...", "net", "net/http/...", "io/ioutil", "io/fs", "log", "log/slog", "syscall", "math/rand", "crypto/rand", "runtime/...",
	"sync/...", "testing/...", "golang.org/x/sys/..."}

// impureCalls of package time.
var impureCalls = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// badNames say nothing about what a package holds.
var badNames = []string{"util", "utils", "common", "types", "helpers", "misc", "shared", "base", "lib"}
