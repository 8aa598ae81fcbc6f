package spec

// Checkpoints reports whether instances of the service are moved with their memory.
func (s *ServiceSpec) Checkpoints() bool { return s.Migration.Mode == MigrateCheckpoint }

// migration refuses what this version cannot carry.
func (c *checker) migration(path string, service *ServiceSpec) {
	c.oneOf(path, service.Migration.Mode, "restart", MigrateCheckpoint)
	if !service.Checkpoints() {
		return
	}
	refuse := func(what string) {
		c.add(path, "use restart, or leave it out", "this version cannot move a service with its memory that %s", what)
	}
	switch {
	case service.Mode != "" && service.Mode != ModeService:
		refuse("is a " + string(service.Mode))
	case service.Runtime == "native":
		refuse("runs as a native process")
	case len(service.Sidecars) > 0:
		refuse("has side containers")
	case service.TTY:
		refuse("has a terminal")
	case len(service.Devices) > 0:
		refuse("has devices of its worker")
	case service.KeepsData():
		refuse("keeps data in local volumes of its worker")
	case subPathIn(service) != "":
		refuse("mounts a part of a volume")
	case len(service.HostPaths()) > 0:
		refuse("keeps data at " + service.HostPaths()[0] + " of its worker")
	}
}
