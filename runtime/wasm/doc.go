// Package wasm runs WebAssembly modules (WASI preview 1) of images, each in a process of its own. A task is what a native one is, a
// process below conmon with its cgroup and network namespace, but the process is "skerry wasm-run": it loads the module's compiled
// code, goes into a root that holds the image and the volumes alone, gives up every privilege, and only then begins the module.
//
//	agent ── conmon ── skerry shim create ── skerry wasm-run TASK      (the shim ends)
//	   └── skerry wasm-run compile                                     (once for each module)
//
// Three programs take their time to begin, so that a start has them begun before it: once a module was started, a spare waits for the
// next one (see spares).
//
// Compiling takes time and memory, and reads what a stranger wrote. It is done once for each module and machine, in a process
// without files, network or privileges, whose result only the same module is ever run with.
//
// What preview 1 does not have cannot be had: other processes, users, signals (the stop signal ends the module), terminals,
// connections to others, UDP, names. A module is given listening sockets for the ports of its service, or no socket at all and
// a run for each request (see Handler). The worker's wiring imports this package, and main calls RunMain.
package wasm
