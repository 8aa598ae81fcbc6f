// Package native runs programs of the host as processes with limits: an own cgroup, user, network namespace and
// mounts, no new privileges. It isolates nothing else: a native task sees the host's files and processes. The worker's
// wiring imports it, and main calls ShimMain.
//
// A task is supervised by conmon, as a container is, so that one path keeps logs, exit status and re-attachment for
// both, and no Go process stays beside a workload: conmon takes 1.2 MiB where a supervisor in Go would take 3 and more.
// Conmon calls an OCI runtime to create what it supervises; here that runtime is this very binary ("shim create"),
// which sets the process up, starts it and ends. Crun with the host's root directory would do the same where crun
// works, but it insists on a mount namespace and a root of its own, and it is not everywhere.
//
//	agent ── conmon ── skerry shim create ── program      (the shim ends; conmon is the program's reaper)
package native
