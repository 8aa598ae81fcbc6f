//go:build linux

package worker

import (
	"path/filepath"
	"strconv"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Local volumes are below the worker's directory:
//
//	local/NAMESPACE/APPLICATION/SERVICE/ORDINAL/VOLUME/data     what the containers see
//	                                                  /image    the file that holds it, where it has a size
//	local/.removed-N                                            on its way out
const (
	localDir      = "local"
	removedPrefix = ".removed-"
)

// places says where files are below a worker's directory. What makes and removes them stands beside what they are for.
type places struct{ dir string }

func (pl places) instanceDir(id skerry.InstanceID) string {
	return filepath.Join(pl.dir, "instances", string(id))
}

func (pl places) volumeDir(id skerry.InstanceID, name string) string {
	return filepath.Join(pl.instanceDir(id), "volumes", name)
}

func (pl places) configFile(id skerry.InstanceID, n int) string {
	return filepath.Join(pl.instanceDir(id), "config", strconv.Itoa(n))
}

// hostDir is where a volume of the host is mounted for an organisation that is held to what the site grants. It is none of the
// directories that a checkpoint carries.
func (pl places) hostDir(id skerry.InstanceID, name string) string {
	return filepath.Join(pl.instanceDir(id), "host", name)
}

func (pl places) claimDir(v spec.VolumeClaim) string {
	app := v.Service.App
	return filepath.Join(pl.dir, localDir, app.Namespace, app.Name, v.Service.Service, strconv.Itoa(v.Ordinal), v.Volume)
}
