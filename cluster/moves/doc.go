// Package moves owns what is remembered about instances that leave their workers, and about why they should. Each type below has a state of
// its own, and knows none of the others:
//
//	Farewells   copies that are to end once nobody is sent to them any more
//	Partings    what the root tells no more about other sites, and packets under way still need
//	Releases    what instances that were told to end still hold
//	Drains      what operators asked to be drained, and what stays there
//	Balance     when the site looks for better places, and which workers are busy
//	Neighbours  what services do to others on their worker, and suffer from them
//	Strain      how near an instance is to the saturation point of its runtime
//	Urgency     how near something on a worker is to a limit, and that the worker was told
//
//	asked, better place, strain, no room ─► the core moves an instance ─► Releases: its old worker still has it ─► gone
//
// The cluster's core, which alone imports it, chooses places and moves instances. It is pure: no clock, no disk, no socket.
package moves
