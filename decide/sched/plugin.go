package sched

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// PluginQuery is what a scheduling plugin is asked, as one JSON value: score these candidates for this service. It is the
// same for every kind of plugin.
type PluginQuery struct {
	Version    int               `json:"version"`        // 1
	Tier       string            `json:"tier,omitempty"` // "root" where candidates are clusters; else they are workers
	Instance   skerry.InstanceID `json:"instance"`
	Service    string            `json:"service"`
	Labels     map[string]string `json:"labels,omitempty"`
	Need       spec.Resources    `json:"need"`
	Placement  spec.Placement    `json:"placement"`
	Seed       uint64            `json:"seed"`
	Candidates []PluginCandidate `json:"candidates"` // that passed every built-in rule, best first
}

// PluginCandidate is one worker, or at the root one cluster: its coordinate is then its gateway's, location the middle of its workers, and
// available what these have together.
type PluginCandidate struct {
	Name       string            `json:"name"`
	Score      float64           `json:"score"` // of the built-in policy, 0 to 1
	Arch       string            `json:"arch,omitempty"`
	Area       string            `json:"area,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Location   *spec.Location    `json:"location,omitempty"`
	Coordinate *spec.Coordinate  `json:"coordinate,omitempty"`
	Capacity   spec.Resources    `json:"capacity"`
	Available  spec.Resources    `json:"available"`
	Power      *wire.Power       `json:"power,omitempty"`
	Pressure   *wire.Pressure    `json:"pressure,omitempty"`
	Age        float64           `json:"age"`               // of these numbers, in seconds
	Peers      int               `json:"peers,omitempty"`   // instances of the same application there; of a cluster, services
	Workers    int               `json:"workers,omitempty"` // of a cluster
}

// PluginVersion is the version of PluginQuery and PluginReply.
const PluginVersion = 1

// PluginReply is a plugin's answer. Candidates that it does not mention keep the built-in score.
type PluginReply struct {
	Scores map[string]float64 `json:"scores,omitempty"` // by candidate, 0 to 1; higher is better
	Out    map[string]string  `json:"out,omitempty"`    // candidates ruled out, and why
}

// PluginCandidates bounds how many candidates a plugin is asked about.
const PluginCandidates = 16

// PluginDeadline is how long the cluster waits for all plugins of one decision before it goes on without them.
const PluginDeadline = 2 * time.Second
