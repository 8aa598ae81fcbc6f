// Package containerd runs containers through a containerd that an operator has on the machine, with whatever shim it knows: it mounts
// an image's layers and describes the container as package oci does, and has the daemon make, start, pause and end it. It speaks the
// daemon's gRPC itself. It never pulls images, and uses neither the daemon's image store nor, unless a class of shims
// names one, its snapshotters. A class that is declared to keep containers apart more than a kernel does is believed when that was seen.
// The worker's wiring imports it.
//
//	Start: directory and record -> overlay and OCI description -> keeper -> container and task of the daemon -> keeper waits -> task starts
//	agent ── containerd ── shim ── container
//	  └── keeper (reads the pipes, writes the log and the exit status)
//
// A step that fails undoes those before it; a crash between two leaves a record, from which Remove cleans up.
package containerd
