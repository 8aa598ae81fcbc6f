// Package placing owns what is remembered while places are looked for, what is known only because somebody outside was
// asked, and how a place has proved:
//
//	Located     where the users of a service are in the network
//	Starts      what has yet to run where it was placed, and (Started, Late) what took too long
//	SLA         how the SLA of an instance has fared
//
// What plugins and workers were asked about an instance is in decide/questions, since a root asks, too:
//
//	no place ─► policy and plugins ─► users known? ─no──► Measure ──► Measured, or too late ─┐
//	                                      │ yes                                              │
//	                                      ▼  ◄───────────────────────────────────────────────┘
//	                               best candidates ─► plugins? ─yes─► Score ─► Scored, or too late ─► combined
//	                                      └─ no ─► decision ◄──────────────────────────────────────────┘
//
// The cluster's core, which alone imports it, makes the scheduler's requests and gives places. It is pure: no clock, no disk, no socket.
package placing
