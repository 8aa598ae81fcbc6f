package skerry

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LocalVolume is a directory that stays on its worker, with what is in it, for as long as the service is there: instances
// come and go, each replica finds its own again.
type LocalVolume struct {
	Size    Bytes  `json:"size,omitempty" doc:"Upper limit; it counts as storage of the worker. Default: what resources.storage of the main container leaves."`
	Reclaim string `json:"reclaim,omitempty" doc:"Fate of the data when the application is deleted, or the service no longer has local volumes: keep (until skerry delete volume) or delete. All local volumes of a service must agree. Default: keep." enum:"keep,delete"`
}

// What LocalVolume.Reclaim may say.
const (
	ReclaimKeep   = "keep"
	ReclaimDelete = "delete"
)

// MinVolumeSize is the least size of a volume on a disk: a file system needs so much for itself.
const MinVolumeSize = 4 * MiB

// KeepsData reports whether replicas of the service have local volumes.
func (s *ServiceSpec) KeepsData() bool {
	if s == nil {
		return false // an instance of which the service is not known
	}
	for i := range s.Volumes {
		if s.Volumes[i].Local != nil {
			return true
		}
	}
	return false
}

// LocalVolumes gives the names and the size of the local volumes of a replica, and whether they go with their service.
func (s *ServiceSpec) LocalVolumes() (names []string, size Bytes, reclaimed bool) {
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Local != nil {
			names = append(names, v.Name)
			size = Bytes(plus(int64(size), int64(v.Local.Size)))
			reclaimed = v.Local.Reclaim == ReclaimDelete
		}
	}
	return names, size, reclaimed
}

// updateRoom gives the defaults of update.maxSurge and update.maxUnavailable. Two instances never have one volume, nor one device.
func (s *ServiceSpec) updateRoom() (surge, missing int) {
	if s.KeepsData() || len(s.Devices) > 0 {
		return 0, 1
	}
	return 1, 0
}

// EndsFirst reports whether an instance ends before its successor starts in an update.
func (s *ServiceSpec) EndsFirst() bool {
	return s.Mode == ModeService && (s.Update.Strategy == "recreate" || s.Update.MaxSurge != nil && *s.Update.MaxSurge == 0)
}

// volumeSizes is what an instance's volumes may take of the worker's disk.
func (s *ServiceSpec) volumeSizes() (sum Bytes) {
	for _, v := range s.Volumes {
		switch {
		case v.Local != nil:
			sum = Bytes(plus(int64(sum), int64(v.Local.Size)))
		case v.Empty != nil && !v.Empty.Memory:
			sum = Bytes(plus(int64(sum), int64(v.Empty.Size)))
		}
	}
	return sum
}

// VolumeClaim stands for the local volumes of one replica of a service: an item of the desired sets of the site and of the
// worker that hold them. While it is there the data stays, whatever becomes of instances; its tombstone removes the data.
type VolumeClaim struct {
	Service ServiceKey `json:"service" cbor:"1,keyasint"`
	Ordinal int        `json:"ordinal" cbor:"2,keyasint,omitempty"`
}

// Key is the claim's key in desired sets.
func (v VolumeClaim) Key() string {
	return prefixVolume + v.Service.String() + "/" + strconv.Itoa(v.Ordinal)
}

func (v VolumeClaim) String() string { return strings.TrimPrefix(v.Key(), prefixVolume) }

// Compare orders by service, then by number.
func (v VolumeClaim) Compare(o VolumeClaim) int {
	return cmp.Or(v.Service.Compare(o.Service), cmp.Compare(v.Ordinal, o.Ordinal))
}

const prefixVolume = "vol/"

// ParseVolumeKey reads what VolumeClaim.Key writes.
func ParseVolumeKey(key string) (v VolumeClaim, ok bool) {
	rest, is := strings.CutPrefix(key, prefixVolume)
	i := strings.LastIndexByte(rest, '/')
	if !is || i < 0 {
		return v, false
	}
	n, err := strconv.Atoi(rest[i+1:])
	v.Service, ok = ParseServiceKey(rest[:i])
	v.Ordinal = n
	return v, ok && err == nil && n >= 0 && v.Key() == key
}

// withoutReclaim gives volumes without what becomes of them after their service.
func withoutReclaim(list []Volume) []Volume {
	var out []Volume
	for i, v := range list {
		if v.Local != nil && v.Local.Reclaim != "" {
			if out == nil {
				out = slices.Clone(list)
			}
			out[i].Local = &LocalVolume{Size: v.Local.Size}
		}
	}
	if out == nil {
		return list
	}
	return out
}

// VolumeState says whether something uses the local volumes of a replica.
type VolumeState string

// States of volumes.
const (
	VolumeUsed VolumeState = "Used" // an instance has them
	VolumeIdle VolumeState = "Idle" // their service is there and would use them again: scaled down, or no instance has a place
	VolumeKept VolumeState = "Kept" // their service is gone
)

// VolumeView shows the local volumes of one replica, which stay and go together.
type VolumeView struct {
	Name      string      `json:"name" doc:"Name in its namespace: APPLICATION/SERVICE/REPLICA."`
	Namespace string      `json:"namespace"`
	App       string      `json:"app"`
	Service   string      `json:"service"`
	Replica   int         `json:"replica" doc:"Number of the replica, from 0."`
	Org       string      `json:"org,omitempty"`
	Volumes   []string    `json:"volumes,omitempty" doc:"Names of the volumes in the manifest."`
	Size      Bytes       `json:"size,omitempty" doc:"Their limit on the disk; 0 if they have no size of their own."`
	State     VolumeState `json:"state" enum:"Used,Idle,Kept" doc:"Used by an instance, idle while their service is there, or kept although it is gone. A cluster does not tell the last two of the root's apart."`
	Since     time.Time   `json:"since,omitzero" doc:"When the last instance ended that used them."`
	Reclaim   string      `json:"reclaim,omitempty" enum:"keep,delete" doc:"What becomes of them with their service; a cluster does not know it of what the root decides."`
	Instance  InstanceID  `json:"instance,omitempty" doc:"The instance that uses them."`
	Cluster   ClusterName `json:"cluster,omitempty"`
	Worker    WorkerName  `json:"worker,omitempty" doc:"The worker that has them; a cluster knows it."`
	Origin    string      `json:"origin" doc:"Who decides about them: root or local."`
}

// NewVolumeView gives a view with the names of a claim.
func NewVolumeView(v VolumeClaim) VolumeView {
	return VolumeView{Name: v.Service.App.Name + "/" + v.Service.Service + "/" + strconv.Itoa(v.Ordinal), Namespace: v.Service.App.Namespace, App: v.Service.App.Name,
		Service: v.Service.Service, Replica: v.Ordinal, Reclaim: ReclaimKeep}
}

// ParseVolumeName reads APPLICATION/SERVICE/REPLICA.
func ParseVolumeName(namespace, name string) (VolumeClaim, error) {
	v, ok := ParseVolumeKey(prefixVolume + namespace + "/" + name)
	if !ok {
		return v, Errorf(CodeInvalid, "%q is not the name of a volume", name).WithHint("write APPLICATION/SERVICE/REPLICA; `skerry get volumes` lists them")
	}
	return v, nil
}

// SortVolumes sorts by name.
func SortVolumes(list []VolumeView) {
	slices.SortFunc(list, func(a, b VolumeView) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.App, b.App), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Replica, b.Replica))
	})
}

// Claim gives the claim that a view shows.
func (v *VolumeView) Claim() VolumeClaim {
	return VolumeClaim{Service: ServiceKey{App: AppKey{Namespace: v.Namespace, Name: v.App}, Service: v.Service}, Ordinal: v.Replica}
}
