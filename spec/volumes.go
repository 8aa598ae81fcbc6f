package spec

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// LocalVolume is a directory that stays on its worker, with what is in it, for as long as the service is there: instances
// come and go, each replica finds its own again.
type LocalVolume struct {
	Size    skerry.Bytes `json:"size,omitempty" doc:"Upper limit; it counts as storage of the worker. It may grow: the volume does with its next instance. A smaller one than it has is rejected. Default: what resources.storage of the main container leaves."`
	Reclaim string       `json:"reclaim,omitempty" doc:"Fate of the data when the application is deleted, or the service no longer has local volumes: keep (until skerry delete volume) or delete. All local volumes of a service must agree. Default: keep." enum:"keep,delete"`
}

// What LocalVolume.Reclaim may say.
const (
	ReclaimKeep   = "keep"
	ReclaimDelete = "delete"
)

// MinVolumeSize is the least size of a volume on a disk: a file system needs so much for itself.
const MinVolumeSize = 4 * skerry.MiB

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
func (s *ServiceSpec) LocalVolumes() (names []string, size skerry.Bytes, reclaimed bool) {
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Local != nil {
			names = append(names, v.Name)
			size = skerry.Bytes(plus(int64(size), int64(v.Local.Size)))
			reclaimed = v.Local.Reclaim == ReclaimDelete
		}
	}
	return names, size, reclaimed
}

// LocalSizes gives the sizes of the local volumes of a replica, by name; 0: it has no size of its own.
func (s *ServiceSpec) LocalSizes() map[string]skerry.Bytes {
	out := map[string]skerry.Bytes{}
	if s == nil {
		return out
	}
	for i := range s.Volumes {
		if v := &s.Volumes[i]; v.Local != nil {
			out[v.Name] = v.Local.Size
		}
	}
	return out
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
func (s *ServiceSpec) volumeSizes() (sum skerry.Bytes) {
	for _, v := range s.Volumes {
		switch {
		case v.Local != nil:
			sum = skerry.Bytes(plus(int64(sum), int64(v.Local.Size)))
		case v.Empty != nil && !v.Empty.Memory:
			sum = skerry.Bytes(plus(int64(sum), int64(v.Empty.Size)))
		}
	}
	return sum
}

// VolumeClaim stands for the local volumes of one replica of a service: an item of the desired sets of the site and of the
// worker that hold them. While it is there the data stays, whatever becomes of instances; its tombstone removes the data. With a Volume it
// stands for that one alone, which has data and which the service no longer has: a peer of an earlier version ignores it.
type VolumeClaim struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Ordinal int               `json:"ordinal" cbor:"2,keyasint,omitempty"`
	Volume  string            `json:"volume,omitempty" cbor:"3,keyasint,omitempty"`
}

// KeptVolumes is what a site tells a worker of a claim. The worker needs no more of it than its key; a site that has lost its store finds
// in it whose they are, and by the seal that it was this site which had them kept there.
type KeptVolumes struct {
	Service skerry.ServiceKey `json:"service" cbor:"1,keyasint"`
	Ordinal int               `json:"ordinal" cbor:"2,keyasint,omitempty"`
	Volume  string            `json:"volume,omitempty" cbor:"3,keyasint,omitempty"`
	Org     string            `json:"org,omitempty" cbor:"4,keyasint,omitempty"`
	Seal    []byte            `json:"seal,omitempty" cbor:"5,keyasint,omitempty"`
	Given
}

// Given says when a site gave a worker something to keep: in which life of its store, and as which of all that it gave that worker. Neither
// is set in what sites of earlier versions gave. The seal covers both: a site that does not know what it gave in its present life has
// deleted it since.
type Given struct {
	Life   skerry.Incarnation `json:"life,omitempty" cbor:"6,keyasint,omitempty"`
	Serial uint64             `json:"serial,omitempty" cbor:"7,keyasint,omitempty"`
}

// Claim gives the claim that it is about.
func (k *KeptVolumes) Claim() VolumeClaim { return VolumeClaim{k.Service, k.Ordinal, k.Volume} }

// Key is the claim's key in desired sets.
func (v VolumeClaim) Key() string {
	return prefixVolume + v.Service.String() + "/" + v.Replica()
}

// Replica is the last part of the claim's name: REPLICA, or REPLICA:VOLUME.
func (v VolumeClaim) Replica() string {
	n := strconv.Itoa(v.Ordinal)
	if v.Volume != "" {
		n += ":" + v.Volume
	}
	return n
}

// Whole is the claim of all volumes of the replica.
func (v VolumeClaim) Whole() VolumeClaim {
	v.Volume = ""
	return v
}

func (v VolumeClaim) String() string { return strings.TrimPrefix(v.Key(), prefixVolume) }

// Compare orders by service, then by number, and what stands for all volumes of a replica comes first.
func (v VolumeClaim) Compare(o VolumeClaim) int {
	return cmp.Or(v.Service.Compare(o.Service), cmp.Compare(v.Ordinal, o.Ordinal), cmp.Compare(v.Volume, o.Volume))
}

const prefixVolume = "vol/"

// ParseVolumeKey reads what VolumeClaim.Key writes.
func ParseVolumeKey(key string) (v VolumeClaim, ok bool) {
	rest, is := strings.CutPrefix(key, prefixVolume)
	i := strings.LastIndexByte(rest, '/')
	if !is || i < 0 {
		return v, false
	}
	number, volume, one := strings.Cut(rest[i+1:], ":")
	n, err := strconv.Atoi(number)
	v.Service, ok = skerry.ParseServiceKey(rest[:i])
	v.Ordinal, v.Volume = n, volume
	return v, ok && err == nil && n >= 0 && (!one || skerry.CheckName(volume) == nil) && v.Key() == key
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

// ParseVolumeName reads APPLICATION/SERVICE/REPLICA.
func ParseVolumeName(namespace, name string) (VolumeClaim, error) {
	v, ok := ParseVolumeKey(prefixVolume + namespace + "/" + name)
	if !ok || v.Volume != "" {
		return v, skerry.Errorf(skerry.CodeInvalid, "%q is not the name of a volume", name).WithHint("write APPLICATION/SERVICE/REPLICA; `skerry get volumes` lists them")
	}
	return v, nil
}

// MaxSubPath bounds the path of a part of a volume.
const MaxSubPath = 1024

// subPath checks the part of a volume that is mounted.
func (c *checker) subPath(p, sub string) {
	if sub == "" {
		return
	}
	upwards := sub == "." || sub == ".." || strings.HasPrefix(sub, "../")
	if path.IsAbs(sub) || path.Clean(sub) != sub || upwards || strings.ContainsRune(sub, 0) || len(sub) > MaxSubPath {
		c.add(p, "write it from the volume's root on, such as data/web", "%q is not a path within a volume without . or .. parts", sub)
	}
}

// subPathIn gives the first mount of a part of a volume, as a path below the service, or "".
func subPathIn(s *ServiceSpec) string {
	return inContainers("mounts", func(k *Container) bool {
		return slices.ContainsFunc(k.Mounts, func(m Mount) bool { return m.SubPath != "" })
	})(s)
}
