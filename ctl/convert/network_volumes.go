package convert

import (
	"path"
	"strings"

	"skerry.dev/skerry/spec"
)

// networkVolume is what a volume of a network file system becomes: a place of the worker at which its operator has that mounted.
func networkVolume(server, export string) (*spec.HostVolume, bool) {
	server = strings.Trim(server, "[]")
	clean := path.Clean("/" + export)
	if server == "" || strings.ContainsAny(server, "/ \t\n") || server == ".." || server == "." {
		return nil, false
	}
	return &spec.HostVolume{Path: strings.TrimSuffix("/srv/nfs/"+server+clean, "/"), FileSystem: "nfs"}, true
}

// onNetwork says what has to be done for a volume of a network file system.
func (f *fields) onNetwork(key, server, export string, volume *spec.HostVolume) {
	f.approx(key, "volumes: host, %s, where the operator of the site has %s:%s mounted on its workers, and which the site's hostPaths allow",
		volume.Path, server, export)
}

// nfs takes a volume of NFS, as pods and PersistentVolumes have it. It is nil if it is refused.
func (f *fields) nfs(became *fields) (volume *spec.HostVolume, readOnly bool) {
	from := f.sub("nfs")
	server, export := from.text("server", ""), from.text("path", "")
	readOnly = from.flag("readOnly", "mounts: readOnly")
	from.nothingLike(nil)
	volume, ok := networkVolume(server, export)
	if !ok {
		from.refuse("server", "%q is not a server", server)
		return nil, readOnly
	}
	became.onNetwork("", server, export, volume)
	return volume, readOnly
}

// networkVolumes finds the named volumes of a Compose file that are on NFS, before services mount them.
func (conv *compose) networkVolumes(top *fields) {
	all, _ := top.m["volumes"].(map[string]any)
	for name := range all {
		one, _ := all[name].(map[string]any)
		options, _ := one["driver_opts"].(map[string]any)
		kind, _ := asText(options["type"])
		if kind != "nfs" && kind != "nfs4" {
			continue
		}
		device, _ := asText(options["device"])
		given, _ := asText(options["o"])
		server, export, ok := strings.Cut(device, ":/")
		var left []string
		readOnly := false
		for option := range strings.SplitSeq(given, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(option), "=")
			switch key {
			case "addr":
				server = value
			case "ro":
				readOnly = true
			case "rw", "":
			default:
				left = append(left, option)
			}
		}
		volume, valid := networkVolume(server, export)
		if !ok || !valid {
			continue // it is refused with what else a driver is told
		}
		conv.nfs[name] = &composeNFS{volume, server, "/" + export, readOnly, left}
	}
}

// composeNFS is a named volume of a Compose file that is on NFS.
type composeNFS struct {
	*spec.HostVolume
	server, export string
	readOnly       bool
	left           []string // options that are the operator's
}

// onNFS mounts a named volume that is on NFS, and reports whether it is. A service has the volume with the first mount.
func (conv *compose) onNFS(from *fields, svc *spec.ServiceSpec, source string, mount spec.Mount,
	volume func(string, spec.Volume) string) bool {
	remote := conv.nfs[source]
	if remote == nil {
		return false
	}
	for _, has := range svc.Volumes {
		if has.Host == remote.HostVolume {
			mount.Volume = has.Name
		}
	}
	if mount.Volume == "" {
		mount.Volume = volume(source, spec.Volume{Host: remote.HostVolume})
	}
	mount.ReadOnly = mount.ReadOnly || remote.readOnly
	svc.Mounts = append(svc.Mounts, mount)
	from.kept("", "volumes: host")
	return true
}

// tell says what became of a volume on NFS.
func (n *composeNFS) tell(from *fields) {
	from.onNetwork("driver_opts", n.server, n.export, n.HostVolume)
	if len(n.left) > 0 {
		from.approx("driver_opts.o", "%s: they are for whoever mounts it", strings.Join(n.left, ","))
	}
	from.take("driver_opts")
}
