// Package network owns what a site's workers are told of each other, and of clients. Each type below has a state, a record and an audit of
// its own, and knows none of the others:
//
//	Peers      who measures round trips to whom: a ring of all workers, and the key of their datagrams
//	Interests  who wants the routes of which services, and which routes must be worked out again
//	Paths      which workers exchange packets, because a route of one leads to the other
//	Endpoints  which workers have the addresses of which services, where there is no overlay
//	Ingress    which ways in the site offers to clients, at which workers, and which application gets which
//	Remote     other sites: their addresses, where the instances of their services are, the numbers of their workers here
//	Mail       the keys by which two clusters write to each other through the root
//
// The cluster's core, which alone imports it, answers their questions about workers and applications, and sends what they return. It is
// pure: no clock, no disk, no socket.
package network
