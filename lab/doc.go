// Package lab makes a federation on one machine: hosts are network namespaces, each with an own address, data directory
// and cgroup, joined by links with delay, loss and rate, and each runs the role that a file gives it. Everything that a
// lab has is found by its name again, so that Down leaves nothing behind even after a crash. Tests, the demo and benchmarks
// use it, and people who want to try Skerry or to break it; no role imports it.
package lab
