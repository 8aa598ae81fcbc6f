// Package oci runs containers without a daemon: it mounts an image's layers with overlayfs, writes an OCI bundle, and has
// conmon supervise crun or runc. It owns its state directory and the cgroups below its parent, and never pulls images
// or touches networks beyond joining the namespace it is given. The worker's wiring imports it.
//
//	Start: directory and record -> overlay -> config.json -> conmon (runtime create) -> runtime start -> record
//
// A step that fails undoes those before it; a crash between two leaves a record, from which Remove cleans up.
package oci
