package convert

import (
	"path"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// networkVolume is what an export of an NFS server becomes, with options of nfs(5). left are those that workers do not take.
func networkVolume(server, export string, options []string) (volume *spec.NFSVolume, left []string, ok bool) {
	volume = &spec.NFSVolume{Server: strings.Trim(server, "[]"), Path: path.Clean("/" + export)}
	for _, option := range options {
		option = strings.TrimSpace(option)
		key, value, _ := strings.Cut(option, "=")
		switch {
		case key == "addr" && value != "":
			volume.Server = strings.Trim(value, "[]")
		case key == "ro":
			volume.ReadOnly = true
		case slices.Contains([]string{"", "rw", "addr", "nfsvers=4", "vers=4"}, option), option == "proto=tcp", option == "tcp":
			// as without it
		case (key == "nfsvers" || key == "vers") && slices.Contains([]string{"3", "4.0", "4.1", "4.2"}, value):
			volume.Version = value
		case spec.NFSOption(option) == nil && option != "nolock":
			volume.Options = append(volume.Options, option)
		case option != "nolock":
			left = append(left, option)
		}
	}
	if volume.Version == "3" { // else its locks would need a daemon of the worker's
		volume.Options = append(volume.Options, "nolock")
	}
	return volume, left, volume.Check() == nil
}

// onNetwork says what became of a volume on an NFS server.
func (f *fields) onNetwork(key string, volume *spec.NFSVolume) {
	f.kept(key, "volumes: nfs; the operator of a worker lets it be mounted with --nfs %s", volume.Source())
	if volume.Version == "3" {
		f.approx(key, "files are locked among instances of one worker alone (nolock): version 4 has locks without a daemon")
	}
}

// nfs takes a volume of NFS, as pods and PersistentVolumes have it, the latter with options. It is nil if it is refused.
func (f *fields) nfs(became *fields) (volume *spec.NFSVolume) {
	from := f.sub("nfs")
	server, export := from.text("server", ""), from.text("path", "")
	readOnly := from.flag("readOnly", "volumes: nfs.readOnly")
	from.nothingLike(nil)
	volume, left, ok := networkVolume(server, export, f.texts("mountOptions", ""))
	if !ok {
		from.refuse("server", "%s is not a server with a path of an export", server+":"+export)
		return nil
	}
	volume.ReadOnly = volume.ReadOnly || readOnly
	became.onNetwork("", volume)
	if len(left) > 0 {
		f.approx("mountOptions", "%s: left out: workers do not take these", strings.Join(left, ","))
	}
	return volume
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
		volume, left, valid := networkVolume(server, export, strings.Split(given, ","))
		if !ok || !valid {
			continue // it is refused with what else a driver is told
		}
		conv.nfs[name] = &composeNFS{volume, left}
	}
}

// composeNFS is a named volume of a Compose file that is on NFS.
type composeNFS struct {
	*spec.NFSVolume
	left []string // options that workers do not take
}

// onNFS mounts a named volume that is on NFS, and reports whether it is. A service has the volume with the first mount.
func (conv *compose) onNFS(from *fields, svc *spec.ServiceSpec, source string, mount spec.Mount,
	volume func(string, spec.Volume) string) bool {
	remote := conv.nfs[source]
	if remote == nil {
		return false
	}
	for _, has := range svc.Volumes {
		if has.NFS == remote.NFSVolume {
			mount.Volume = has.Name
		}
	}
	if mount.Volume == "" {
		mount.Volume = volume(source, spec.Volume{NFS: remote.NFSVolume})
	}
	svc.Mounts = append(svc.Mounts, mount)
	from.kept("", "volumes: nfs")
	return true
}

// tell says what became of a volume on NFS.
func (n *composeNFS) tell(from *fields) {
	from.onNetwork("driver_opts", n.NFSVolume)
	if len(n.left) > 0 {
		from.approx("driver_opts.o", "%s: left out: workers do not take these", strings.Join(n.left, ","))
	}
	from.take("driver_opts")
}
