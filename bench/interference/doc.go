// Package interference measures what neighbours cost a service in each kind of isolation: how long a service takes, the
// image service of the thesis (004, chapters 4 and 5) or a database, an inference, a video or an MQTT stream, at fixed
// rates of requests, beside loads that use a resource as the service does, and at which rate it is full. `skerry bench
// interference` is its command.
//
//	rows (place, limits, pinning, neighbour, rate) ─> fresh instance ─> warm-up ─> open-loop load ─> settle ─> report
//	                                                  └ neighbour ────────────────────┘
//
// Requests are sent when they are due, whether or not earlier ones came back, and their latency counts from then; a run in which the
// generator itself came late is invalid. A row that the machine has too few processors for is listed with that reason.
package interference
