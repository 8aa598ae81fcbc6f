package convert

import (
	"path"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// sharedMemory gives a container memory that its processes share, in place of the little that it has there.
func (f *fields) sharedMemory(svc *spec.ServiceSpec) {
	size := f.bytes("shm_size", "volumes: empty, in memory, at /dev/shm")
	if size == 0 {
		return
	}
	name := "shm"
	for slices.ContainsFunc(svc.Volumes, func(v spec.Volume) bool { return v.Name == name }) {
		name += "-memory"
	}
	svc.Volumes = append(svc.Volumes, spec.Volume{Name: name, Empty: &spec.EmptyVolume{Memory: true, Size: skerry.Bytes(size)}})
	svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: "/dev/shm"})
}

// part gives a path within a volume as a manifest has it; "" for the whole. It refuses one that leads out.
func (f *fields) part(key, below string) string {
	if below == "" {
		return ""
	}
	clean := path.Clean(below)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		f.refuse(key, "%q is not a path within the volume", below)
		return ""
	}
	if clean == "." {
		return ""
	}
	return clean
}
