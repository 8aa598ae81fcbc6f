package spec

// Checkpoints reports whether instances of the service are moved with their memory.
func (s *ServiceSpec) Checkpoints() bool { return s.Migration.Mode == MigrateCheckpoint }

// migration refuses what this version cannot carry.
func (c *checker) migration(path string, s *ServiceSpec) {
	c.oneOf(path, s.Migration.Mode, "restart", MigrateCheckpoint)
	if !s.Checkpoints() {
		return
	}
	refuse := func(what string) {
		c.add(path, "use restart, or leave it out", "this version cannot move a service with its memory that %s", what)
	}
	switch {
	case s.Mode != "" && s.Mode != ModeService:
		refuse("is a " + string(s.Mode))
	case s.Runtime == "native":
		refuse("runs as a native process")
	case len(s.Sidecars) > 0:
		refuse("has side containers")
	case s.TTY:
		refuse("has a terminal")
	case len(s.Devices) > 0:
		refuse("has devices of its worker")
	case s.KeepsData():
		refuse("keeps data in local volumes of its worker")
	case len(s.HostPaths()) > 0:
		refuse("keeps data at " + s.HostPaths()[0] + " of its worker")
	}
}
