package spec

import "slices"

// NetworkFileSystems lists, for each network file system that a volume of the host may ask for, what kernels call it.
func NetworkFileSystems() map[string][]string {
	return map[string][]string{"nfs": {"nfs", "nfs4"}, "smb": {"cifs", "smb3"}, "ceph": {"ceph", "fuse.ceph", "fuse.ceph-fuse"},
		"glusterfs": {"fuse.glusterfs"}}
}

// PathsOfWorker lists the paths of its worker's machine to which a service may write, and which no other worker has.
func PathsOfWorker(s *ServiceSpec) []string {
	return slices.DeleteFunc(s.HostPaths(), func(path string) bool {
		return !slices.ContainsFunc(s.Volumes, func(v Volume) bool { return v.Host != nil && v.Host.Path == path && v.Host.FileSystem == "" })
	})
}

// onNetwork reports whether a service has a volume on a network file system.
func onNetwork(s *ServiceSpec) bool {
	return slices.ContainsFunc(s.Volumes, func(v Volume) bool { return v.Host != nil && v.Host.FileSystem != "" })
}
