package view

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Phases of a rollout.
const (
	RolloutCanary = "Canary"      // the first few are watched
	RolloutWaves  = "Progressing" // wave by wave
	RolloutPaused = "Paused"      // by an operator
	RolloutBack   = "GoingBack"   // to what ran before
	RolloutDone   = "Done"
)

// WaitsForRefused is why an update waits for that of another service which was rolled back: nothing goes on until somebody acts.
func WaitsForRefused(service string) string {
	return "service " + service + " goes first, and was rolled back"
}

// RolloutView tells how far a version of a service has come in taking the place of the one before.
type RolloutView struct {
	Phase     string            `json:"phase" doc:"Canary, Progressing, Paused, GoingBack or Done." enum:"Canary,Progressing,Paused,GoingBack,Done"`
	Revision  string            `json:"revision"`
	From      string            `json:"from,omitempty" doc:"Previous revision."`
	Gen       skerry.Generation `json:"generation"`
	StartedAt time.Time         `json:"startedAt"`
	EndedAt   time.Time         `json:"endedAt,omitzero"`
	Wave      int               `json:"wave" doc:"Current wave, counted from 1; 0 is the canary."`
	Limit     int               `json:"limit,omitempty" doc:"Maximum number of instances of the new revision in this wave."`
	NextAt    time.Time         `json:"nextAt,omitzero" doc:"When the next wave begins."`
	Paused    string            `json:"paused,omitempty" doc:"Who paused it."`
	Failures  int               `json:"failures,omitempty" doc:"Restarts and failures of instances of the new revision."`
	Reason    string            `json:"reason,omitempty" doc:"Reason of the last failure."`
	Failing   bool              `json:"failing,omitempty" doc:"The new version has failed but stays, because rollback is off or impossible; see reason."`
	Waits     string            `json:"waits,omitempty" doc:"Why the rollout is blocked: an old instance would have to end before a new one can start, and there is no place for the new one."`
	Sites     *RolloutSites     `json:"sites,omitempty" doc:"Progress at the sites; only for modes perWorker and perDevice, at a root."`
	Refused   *RefusedView      `json:"refused,omitempty" doc:"Version that was rolled back. It is not retried until the manifest changes."`
}

// RolloutSites counts the sites of a perWorker service.
type RolloutSites struct {
	All  int `json:"all" doc:"Sites that are to have the service."`
	Done int `json:"done" doc:"Sites where all copies run the new version and serve."`
	Away int `json:"away,omitempty" doc:"Sites that are out of touch or in quarantine, without the new version; they get it later."`
}

// RefusedView is a version that failed and was taken back.
type RefusedView struct {
	Revision string    `json:"revision"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

// RevisionView is an application as it is or was.
type RevisionView struct {
	Gen      skerry.Generation `json:"generation"`
	At       time.Time         `json:"at"`
	Author   string            `json:"author,omitempty"`
	Site     string            `json:"site,omitempty" doc:"Site whose override, made while the root was unreachable, was not adopted."`
	Why      string            `json:"why,omitempty" doc:"Why the override was not adopted."`
	Services []ServiceRevision `json:"services"`
}

// VersionView is the manifest that an application has or had.
type VersionView struct {
	Gen      skerry.Generation `json:"generation"`
	At       time.Time         `json:"at,omitzero"`
	Author   string            `json:"author,omitempty"`
	Manifest spec.Application  `json:"manifest" doc:"The manifest without the defaults that were filled in. It can be applied again."`
}

// ServiceRevision names what a service runs.
type ServiceRevision struct {
	Name     string `json:"name"`
	Revision string `json:"revision"`
	Image    string `json:"image,omitempty"`
}
