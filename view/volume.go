package view

import (
	"cmp"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// VolumeState says whether something uses the local volumes of a replica.
type VolumeState string

// States of volumes.
const (
	VolumeUsed VolumeState = "Used" // an instance has them
	VolumeIdle VolumeState = "Idle" // their service is there and would use them again: scaled down, or no instance has a place
	VolumeKept VolumeState = "Kept" // their service is gone, or no longer has them
	// VolumeOrphan are volumes that a site which had lost its store found on a worker. An application of their name uses them again.
	VolumeOrphan VolumeState = "Orphan"
)

// VolumeView shows the local volumes of one replica, which stay and go together.
type VolumeView struct {
	Name      string               `json:"name" doc:"Name in its namespace: APPLICATION/SERVICE/REPLICA."`
	Namespace string               `json:"namespace"`
	App       string               `json:"app"`
	Service   string               `json:"service"`
	Replica   int                  `json:"replica" doc:"Number of the replica, starting at 0."`
	Org       string               `json:"org,omitempty"`
	Volume    string               `json:"volume,omitempty" doc:"The single volume this is about, if the service no longer lists it. name then ends with :VOLUME."`
	Volumes   []string             `json:"volumes,omitempty" doc:"Names of the volumes in the manifest."`
	Size      skerry.Bytes         `json:"size,omitempty" doc:"Size limit; 0 if they have none of their own."`
	State     VolumeState          `json:"state" enum:"Used,Idle,Kept,Orphan" doc:"Used by an instance, Idle while their service exists, Kept after it was deleted or no longer lists them, or Orphan when a cluster that had lost its store found them on a worker. A cluster cannot tell Idle and Kept apart for applications of the root."`
	Since     time.Time            `json:"since,omitzero" doc:"When the last instance that used them ended, or orphans were found."`
	Reclaim   string               `json:"reclaim,omitempty" enum:"keep,delete" doc:"What happens to them when their service is deleted. Not known at a cluster for applications of the root."`
	Instance  skerry.InstanceID    `json:"instance,omitempty" doc:"Instance that uses them."`
	Cluster   skerry.ClusterName   `json:"cluster,omitempty"`
	Worker    skerry.WorkerName    `json:"worker,omitempty" doc:"Worker that stores them. Known at the cluster only."`
	Scheduled *wire.VolumeSchedule `json:"scheduled,omitempty" doc:"Status of scheduled snapshots, as reported by the cluster."`
	Origin    string               `json:"origin" doc:"Owner: root or local."`
}

// NewVolumeView gives a view with the names of a claim.
func NewVolumeView(v spec.VolumeClaim) VolumeView {
	app := v.Service.App
	return VolumeView{Name: app.Name + "/" + v.Service.Service + "/" + v.Replica(), Namespace: app.Namespace, App: app.Name,
		Service: v.Service.Service, Replica: v.Ordinal, Volume: v.Volume, Reclaim: spec.ReclaimKeep}
}

// SortVolumes sorts by name.
func SortVolumes(list []VolumeView) {
	slices.SortFunc(list, func(a, b VolumeView) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Volume, b.Volume))
	})
}

// Claim gives the claim that a view shows.
func (v *VolumeView) Claim() spec.VolumeClaim {
	of := skerry.ServiceKey{App: skerry.AppKey{Namespace: v.Namespace, Name: v.App}, Service: v.Service}
	return spec.VolumeClaim{Service: of, Ordinal: v.Replica, Volume: v.Volume}
}
