// Package hostnet is basic networking for instances, without an overlay: each gets a network namespace, an address on a
// bridge, the way out by masquerading, and ports of the host. It owns its bridge, the interfaces and the nftables table
// that carry the worker's name, and its directory of namespaces; it touches nothing else on the machine but ip_forward,
// which it switches on and leaves on. The worker's wiring imports it.
//
//	instance eth0 ── veth ── bridge (gateway) ── routing, nftables table skerry_<worker> ── the host's network
//
// The machine is changed only by Set, with the whole desired configuration; what is there already stays untouched, so
// that a restarted agent disturbs no traffic. Close leaves everything up. CleanUp takes everything down, from nothing
// but the worker's name and directories.
//
// Host ports are translated before routing for packets from elsewhere, and on output for those of the host itself. For
// connections to 127.0.0.1 the bridge gets route_localnet; in exchange every packet that arrives from the bridge for
// 127.0.0.0/8 is dropped, so that no instance reaches the host's loopback services. An address that the host gives to a
// port must be one of its own; connections through it keep the client's address, but for those from loopback and those
// of an instance to a port of its own host, which come from the bridge's address.
//
// The host itself is closed to instances: of its services they reach name servers and listeners opened by OpenToInstances, and
// neither link-local addresses nor what a cloud tells its machines there. Options.OpenHost opens it.
//
// An instance with a policy (Want.Egress) reaches what that allows, and of the host nothing but its names and, where the policy and the
// host let it, listeners opened by OpenToInstances. Without an overlay its neighbours on the bridge are not outside.
//
// All instances of one worker share the bridge and reach each other; separation of tenants is the overlay's business.
package hostnet
