package view

import (
	"skerry.dev/skerry"
)

// Rebuilt is what the rebuilding of a site from its workers has come to.
type Rebuilt struct {
	// Waiting: workers still have time to come back; nothing is started anew before.
	Waiting bool `json:"waiting,omitempty"`
	Workers int  `json:"workers"`
	// Local are services of the site's own applications, made again from what workers hold of them.
	Local []RebuiltService `json:"own,omitempty"`
	// OfRoot counts the instances of the root's that have a worker.
	OfRoot int `json:"ofRoot"`
	// Left are instances that run on and belong to nothing that the site knows.
	Left []RebuiltLeft `json:"left,omitempty"`
}

// RebuiltService is one service that was made again. Wanted is how many instances there were, as its assignments say.
type RebuiltService struct {
	Service   skerry.ServiceKey `json:"service"`
	Instances int               `json:"instances"`
	Wanted    int               `json:"wanted"`
}

// RebuiltLeft is an instance that was not taken up, and why.
type RebuiltLeft struct {
	Instance skerry.InstanceID `json:"instance"`
	Why      string            `json:"why"`
}

// NotRebuilt lists what no worker holds, and a rebuilt site therefore does not have.
func NotRebuilt() []string {
	return []string{
		"users, organisations' quotas, roles and tokens made since the backup",
		"revocations since the backup: whoever holds a certificate of the site's CA came back",
		"the site's own applications of which nothing ran; jobs, schedules and services with one instance per worker",
		"old versions of applications, who changed what, events and the audit log",
		"secrets of the site's own applications made since the backup; what runs with them has them still",
		"uploaded certificates of ingresses made since the backup; numbers and prefixes of the overlay given since then are given anew",
	}
}
