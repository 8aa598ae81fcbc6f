// Package artifact keeps images without a daemon: a content-addressed store on disk, a client and a server of the OCI
// distribution protocol, layers unpacked for overlayfs, and a builder. It starts nothing and mounts nothing. Runtimes,
// workers, clusters and the command import it; cores never do.
package artifact
