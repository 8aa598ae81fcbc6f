// Package spec owns manifests: their types, defaults, limits and validation, their schema, what runtimes can do for them, and the
// assignment that a worker gets of them. It decides nothing about a running system, knows no message and no answer of the API, does no I/O,
// and every package but the root one may import it.
package spec
