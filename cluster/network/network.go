// Package network owns what a site's workers are told of each other. Each type below has its own state and record, and is used by itself:
//
//	Peers      who measures round trips to whom: a ring of all workers, and the key of their datagrams
//
// The cluster's core, which alone imports it, says which workers there are, and sends what they are told. It is pure: no clock, no disk, no
// socket.
package network
