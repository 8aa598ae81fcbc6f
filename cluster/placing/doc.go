// Package placing owns what is remembered while places are looked for, what is known only because somebody outside was
// asked, and how a place has proved:
//
//	Questions   the scheduling plugins of a site, and what they and workers were asked about an instance (decide/questions)
//	Located     where the users of a service are in the network
//	Starts      what has yet to run where it was placed, and (Started, Late) what took too long
//	SLA         how the SLA of an instance has fared
//
//	no place ─► policy and plugins ─► users known? ─no──► Measure ──► Measured, or too late ─┐
//	                                      │ yes                                              │
//	                                      ▼  ◄───────────────────────────────────────────────┘
//	                               best candidates ─► plugins? ─yes─► Score ─► Scored, or too late ─► combined
//	                                      └─ no ─► decision ◄──────────────────────────────────────────┘
//
// The cluster's core, which alone imports it, makes the scheduler's requests and gives places. It is pure: no clock, no disk, no socket.
package placing
