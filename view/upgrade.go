package view

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// UpgradePlan asks the root for an upgrade of clusters in waves.
type UpgradePlan struct {
	Name        string            `json:"name" minLength:"1" maxLength:"63" doc:"Name of the upgrade."`
	Image       string            `json:"image" minLength:"1" maxLength:"512" doc:"Image that holds the program as /skerry."`
	Clusters    []string          `json:"clusters,omitempty" maxItems:"2500" doc:"Clusters to upgrade."`
	Labels      map[string]string `json:"labels,omitempty" doc:"Labels of the clusters to upgrade."`
	All         bool              `json:"all,omitempty" doc:"Upgrade all clusters."`
	Wave        int               `json:"wave,omitempty" minimum:"0" maximum:"2500" doc:"Clusters at a time. Default: 1."`
	MaxFailures int               `json:"maxFailures,omitempty" minimum:"0" maximum:"2500" doc:"Clusters that may fail before it stops."`
	Steady      spec.Duration     `json:"steady,omitempty" doc:"How long a cluster must work with it. Default: 1m; at most 24h."`
	Window      spec.Duration     `json:"window,omitempty" doc:"Time for the trial of each worker. Default: 2m; at most 1h."`
	Timeout     spec.Duration     `json:"timeout,omitempty" doc:"Time for each cluster. Default: 1h; at most 720h."`
}

// UpgradeState is how far an upgrade of clusters is.
type UpgradeState string

// States of an upgrade. From Stopped, too, it can be resumed: what failed is tried again.
const (
	UpgradeRunning UpgradeState = "Running"
	UpgradePaused  UpgradeState = "Paused"
	UpgradeStopped UpgradeState = "Stopped" // too many clusters failed
	UpgradeAborted UpgradeState = "Aborted"
	UpgradeDone    UpgradeState = "Done"
)

// Ended reports whether nothing more will happen.
func (s UpgradeState) Ended() bool { return s == UpgradeAborted || s == UpgradeDone }

// UpgradeStage is how far one cluster of an upgrade is.
type UpgradeStage string

// Stages of a cluster.
const (
	StageWaiting   UpgradeStage = "Waiting"
	StageUpgrading UpgradeStage = "Upgrading"
	StageWatched   UpgradeStage = "Watched" // all its workers have the new program; it has to work for the steady time
	StageDone      UpgradeStage = "Done"
	StageFailed    UpgradeStage = "Failed"
	StageSkipped   UpgradeStage = "Skipped"
)

// Upgrade is an upgrade of clusters in waves.
type Upgrade struct {
	UpgradePlan
	Digest string           `json:"digest" doc:"The image, pinned by its digest."`
	By     string           `json:"by,omitempty" doc:"User who began it."`
	Since  time.Time        `json:"since"`
	State  UpgradeState     `json:"state" enum:"Running,Paused,Stopped,Aborted,Done"`
	Why    string           `json:"why,omitempty" doc:"Why it has this state."`
	At     time.Time        `json:"at" doc:"When it got this state."`
	Sites  []UpgradeCluster `json:"sites" doc:"Its clusters, by waves."`
}

// UpgradeCluster is one cluster of an upgrade.
type UpgradeCluster struct {
	Cluster  skerry.ClusterName `json:"cluster"`
	Wave     int                `json:"wave" doc:"Its wave, from 1. 0: none, it is skipped."`
	Stage    UpgradeStage       `json:"stage" enum:"Waiting,Upgrading,Watched,Done,Failed,Skipped"`
	Since    time.Time          `json:"since,omitzero" doc:"When it got to this stage."`
	Begun    time.Time          `json:"begun,omitzero" doc:"When its turn began."`
	Why      string             `json:"why,omitempty" doc:"Why it failed or was skipped, or what it waits for."`
	Seq      uint64             `json:"seq,omitempty" doc:"Number of the order that it was given."`
	Workers  int                `json:"workers,omitempty" doc:"Its workers, as it reports them."`
	Upgraded int                `json:"upgraded,omitempty" doc:"Workers that have the new program."`
	Versions map[string]int     `json:"versions,omitempty" doc:"Workers by the version of their agent."`
}
