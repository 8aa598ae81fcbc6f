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

	// manifests, messages between tiers, answers of the API
	"spec": ".",
	"wire": ". spec",
	"view": ". spec wire decide/evidence",

	// pure: decisions, differences, addresses, distances
	"decide/sched":     ". spec wire decide/coord",
	"decide/questions": ". spec wire decide/sched",
	"decide/reconcile": ". wire",
	"decide/ipam":      ". spec",
	"decide/coord":     "spec",
	"decide/evidence":  "",
	"decide/crontab":   "",
	"decide/apps":      ". spec wire view decide/crontab decide/ipam decide/sched decide/reconcile internal/sorted",
	"decide/members":   ". wire decide/reconcile",
	"decide/lease":     "wire",
	"internal/sorted":  "",

	// state, identity, transport
	"store":             "internal/files internal/panics",
	"store/storetest":   "store",
	"store/journal":     "wire",
	"auth":              ". wire link/frame store store/journal internal/files",
	"link":              "wire link/frame link/beat internal/panics",
	"link/beat":         "internal/panics",
	"link/frame":        "wire",
	"link/mqtt":         "wire link/frame internal/panics",
	"artifact":          "artifact/imagekey artifact/imageref internal/owners internal/panics internal/files internal/sbom",
	"artifact/imagekey": "",
	"artifact/imageref": "",
	"plugin":            ". spec wire decide/sched internal/wasmcode",
	"store/vault":       "spec internal/files",

	// roles: a server, and the core that decides for it
	"root":             ". spec wire view root/core decide/apps decide/sched internal/loop internal/panics internal/tier overlay/resolver store store/journal store/vault",
	"root/core":        ". spec wire view artifact/imageref decide/apps decide/coord decide/evidence decide/members decide/questions decide/reconcile decide/sched",
	"cluster":          ". spec wire view cluster/certs cluster/core cluster/history cluster/network cluster/volumes auth decide/apps decide/coord decide/questions decide/sched internal/acmeclient internal/loop internal/panics internal/printed internal/roundtrip internal/s3 internal/tier overlay/relay overlay/resolver store store/journal store/vault",
	"cluster/core":     ". spec wire view artifact/imagekey artifact/imageref cluster/autonomy cluster/certs cluster/detect cluster/moves cluster/network cluster/placing cluster/trust cluster/uplink cluster/volumes decide/apps decide/coord decide/evidence decide/ipam decide/members decide/questions decide/reconcile decide/sched",
	"cluster/autonomy": ". spec wire view decide/apps",
	"cluster/certs":    ". spec wire view",
	"cluster/detect":   "wire",
	"cluster/history":  ". view internal/panics",
	"cluster/moves":    ". spec wire decide/sched",
	"cluster/network":  ". spec wire view",
	"cluster/placing":  ". spec wire decide/coord",
	"cluster/trust":    ". spec wire decide/evidence",
	"cluster/uplink":   ". spec wire decide/coord decide/members",
	"cluster/volumes":  ". spec wire view decide/crontab",
	"worker":           ". spec wire view worker/core artifact artifact/imageref auth decide/coord internal/blockdev internal/cdi internal/devices internal/diskuse internal/execstream internal/files internal/loop internal/loopfs internal/nfsmount internal/owners internal/panics internal/printed internal/processstats internal/roundtrip internal/snapshot internal/thread internal/tier internal/topology overlay overlay/hostnet overlay/ingress overlay/resolver overlay/tunnel overlay/wireguard runtime runtime/lease store store/journal store/vault",
	"worker/core":      ". spec wire decide/members decide/reconcile",

	"worker/pods":          ". spec wire worker/core artifact/imageref auth internal/execstream internal/loop internal/panics internal/tier store store/journal store/vault",
	"worker/pods/podstest": "",

	// how code runs; drivers never see the overlay
	"runtime":              ". spec wire runtime/internal/passwd",
	"runtime/internal/...": ". spec runtime runtime/internal/... internal/files internal/thread",
	"runtime/native":       ". artifact runtime runtime/internal/... internal/files internal/signals internal/thread",
	"runtime/oci":          "spec artifact internal/owners runtime runtime/internal/... internal/files internal/thread",
	"runtime/containerd":   "spec internal/owners runtime runtime/internal/... runtime/oci internal/files",
	"runtime/wasm":         ". spec wire runtime runtime/internal/... runtime/native internal/httpend internal/printed internal/wasmcode",
	"runtime/lease":        ". runtime/internal/... internal/files",
	"runtime/vm":           ". spec runtime runtime/internal/... runtime/vm/wire internal/files internal/thread",
	"runtime/vm/guestinit": "runtime/vm/wire",
	"runtime/vm/wire":      "",
	"runtime/runtimetest":  ". spec wire internal/blockdev internal/diskuse internal/owners internal/testenv internal/thread runtime runtime/internal/cgroup",

	"runtime/runtimetest/workload": "",

	"overlay":                    "spec wire",
	"overlay/hostnet":            ". spec wire overlay/internal/kernel internal/files internal/thread",
	"overlay/bpf":                "wire overlay overlay/internal/... internal/panics",
	"overlay/nft":                "wire overlay overlay/internal/... internal/panics",
	"overlay/internal/...":       ". overlay/internal/kernel internal/thread",
	"overlay/internal/planetest": "wire overlay overlay/internal/... internal/testenv",
	"overlay/wireguard":          "wire overlay overlay/relay/frame",
	"overlay/tunnel":             "wire overlay overlay/relay/frame internal/panics",
	"overlay/relay":              "wire overlay overlay/relay/frame internal/panics",
	"overlay/relay/frame":        "wire",
	"overlay/resolver":           ". spec overlay internal/panics",
	"overlay/ingress":            "spec wire overlay internal/panics",

	// API, client, commands
	"api":          ". spec wire view decide/apps artifact auth internal/execstream internal/sbom internal/tier store/journal store runtime web internal/httpend internal/processstats internal/yamlsize artifact/imageref",
	"api/oakestra": ". spec wire view api decide/apps auth ctl/convert",
	"web":          "std",
	"packaging":    "std",
	"api/client":   ". api decide/apps artifact auth internal/execstream store/journal runtime",
	"ctl":          ". api api/client decide/apps artifact auth internal/execstream store/journal runtime store",
	"ctl/...":      ". spec wire view api api/client decide/apps artifact auth ctl ctl/console ctl/convert ctl/gitrepo internal/execstream internal/s3 internal/yamlsize store/journal runtime store artifact/imageref",
	"ctl/console":  ".",
	"ctl/convert":  ". spec",
	"ctl/gitrepo":  ". internal/printed",

	// places that know all parts
	"cmd/...":          "any",
	"internal/node":    "any",
	"internal/parents": "any",
	"lab/...":          "any",
	"bench/...":        "any",
	"bench/published":  "",
	"e2e/...":          "any",
	"sim/...":          "any",

	"internal/blockdev":     "",
	"internal/cdi":          "spec",
	"internal/devices":      "spec",
	"internal/diskuse":      "",
	"internal/files":        "",
	"internal/httpend":      "",
	"internal/loop":         ". wire internal/panics store",
	"internal/olddata":      "store",
	"internal/loopfs":       "",
	"internal/nfsmount":     "spec internal/files",
	"internal/otlp":         ". wire store/journal",
	"internal/owners":       "internal/files",
	"internal/roundtrip":    "spec wire decide/coord internal/files internal/panics",
	"internal/acmeclient":   "wire",
	"internal/printed":      "",
	"internal/processstats": "",
	"internal/s3":           ".",
	"internal/snapshot":     ". spec",
	"internal/thread":       "",
	"internal/yamlsize":     ".",
	"internal/signals":      "",
	"internal/tier":         ". spec view decide/apps decide/evidence artifact auth internal/execstream internal/loop internal/panics internal/sbom wire store/journal link link/beat link/mqtt store store/vault artifact/imageref",
	"internal/succession":   ". wire auth internal/tier link link/frame store decide/lease store/vault internal/files",
	"internal/execstream":   "",
	"internal/life":         "",
	"internal/panics":       "",
	"internal/profile":      ". spec wire runtime internal/files",
	"internal/sbom":         "",
	"internal/debugz":       "",
	"internal/upgrade":      ". spec store internal/files",
	"internal/wasmcode":     "",
	"internal/topology":     "",
	"internal/testenv":      "",
	"internal/archtest":     "",

	// programs of their own
	"examples/...": "examples/shop/endpoints examples/video/vision link/mqtt",
	"scripts/...":  "",
}

// roles may be imported only by the places where things are put together, and no role imports another, nor a part of it.
var roles = []string{"root", "cluster", "worker"}

// vocabulary is what pure packages may import beside each other: words, messages and views, which decide nothing.
var vocabulary = []string{".", "spec", "wire", "view"}

// pure packages take the time as an argument: no clock, no disk, no socket, no goroutine, nor a package of ours that has one.
var pure = []string{"decide/sched", "decide/questions",
	"decide/reconcile", "decide/ipam", "decide/coord", "decide/evidence", "decide/crontab",
	"decide/apps", "decide/members", "decide/lease", "artifact/imagekey", "artifact/imageref", "root/core", "worker/core", "cluster/core",
	"cluster/autonomy", "cluster/certs", "cluster/detect", "cluster/moves", "cluster/network",
	"cluster/placing", "cluster/trust", "cluster/uplink", "cluster/volumes", "internal/sorted"}

// impureImports may not be imported by pure packages.
var impureImports = []string{"os", "os/...", "net", "net/http/...", "io/ioutil", "io/fs", "log", "log/slog", "syscall", "math/rand",
	"crypto/rand", "runtime/...", "sync/...", "testing/...", "golang.org/x/sys/..."}

// impureCalls of package time.
var impureCalls = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// small is the program for boards with little flash memory, and heavy what neither it nor anything that it imports may import.
const small = "cmd/skerry-worker"

var heavy = []string{"root/...", "cluster/...", "web", "bench/...", "lab/...", "sim/...", "api/...",
	"ctl", "plugin", "internal/parents", "internal/s3"}

// badNames say nothing about what a package holds.
var badNames = []string{"util", "utils", "common", "types", "helpers", "misc", "shared", "base", "lib"}
