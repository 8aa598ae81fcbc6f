package wire

import (
	"slices"
	"time"
)

// FeatureRootUsers is offered by a site that answers requests of the root's users, and by a root that passes them on.
const FeatureRootUsers = "root-users"

// RootUsersPath begins the paths of these requests, which travel over streams of the site's own connection. What follows is a path of the
// site's API. The headers say who asks, and under which name the root's log and audit have the request.
const (
	RootUsersPath     = "/site"
	RootUserHeader    = "Skerry-User"
	RootRequestHeader = "Skerry-Request"
)

// Grant is what a site lets the users of its root do inside it. It grants nothing by itself.
type Grant string

// Grants of a site.
const (
	GrantWorkers Grant = "workers" // see its workers: their names, addresses and values
	GrantDrain   Grant = "drain"   // cordon, drain and uncordon them
	GrantUpgrade Grant = "upgrade" // upgrade their agents
	GrantWaves   Grant = "waves"   // have the site upgrade all of them, in the root's waves of sites
)

// Grants lists all that there are.
func Grants() []Grant { return []Grant{GrantWorkers, GrantDrain, GrantUpgrade, GrantWaves} }

// KnownGrants gives those of a list that this program knows, each once and in the order of Grants.
func KnownGrants(list []Grant) (out []Grant) {
	for _, g := range Grants() {
		if slices.Contains(list, g) {
			out = append(out, g)
		}
	}
	return out
}

// Granted is a grant that a site has given.
type Granted struct {
	Grant Grant     `json:"grant" doc:"workers, drain, upgrade or waves."`
	By    string    `json:"by,omitempty" doc:"User of the site who gave it."`
	At    time.Time `json:"at"`
}
