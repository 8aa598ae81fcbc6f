package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/docker/go-units"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// mounts takes volumes, and files and directories of the machine where the file is.
func (conv *compose) mounts(from *fields, svc *spec.ServiceSpec) {
	volume := func(like string, v spec.Volume) string {
		base := Name(like)
		if base == "" {
			base = "data"
		}
		v.Name = base
		for n := 2; slices.ContainsFunc(svc.Volumes, func(x spec.Volume) bool { return x.Name == v.Name }); n++ {
			v.Name = fmt.Sprintf("%s-%d", base, n)
		}
		svc.Volumes = append(svc.Volumes, v)
		return v.Name
	}
	for _, mount := range from.each("volumes") {
		kind, source, target := mount.text("type", ""), mount.text("source", ""), mount.text("target", "")
		readOnly := mount.flag("read_only", "")
		switch kind {
		case "volume":
			how := mount.sub("volume")
			uncopied := how.flag("nocopy", "as always: what the image has at that place is not copied")
			mount.label()
			part := how.part("subpath", how.text("subpath", "mounts: subPath"))
			how.nothingLike(nil)
			if source == "" {
				source = strings.ReplaceAll(strings.Trim(target, "/"), "/", "-")
				mount.approx("", "an empty volume, which ends with its instance")
				name := volume(source, spec.Volume{Empty: &spec.EmptyVolume{}})
				svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: target, ReadOnly: readOnly})
				break
			}
			if conv.onNFS(mount, svc, source, spec.Mount{Path: target, SubPath: part, ReadOnly: readOnly}, volume) {
				break
			}
			same := slices.IndexFunc(svc.Volumes, func(v spec.Volume) bool { return v.Name == Name(source) && v.Local != nil })
			name := Name(source)
			if same < 0 {
				name = volume(source, spec.Volume{Local: &spec.LocalVolume{}})
			}
			conv.share(source, svc.Name, name)
			if uncopied {
				mount.kept("", "volumes: local, at %s", target)
			} else {
				mount.approx("", "volumes: local, at %s; it is empty at first: what the image has there is not copied", target)
			}
			svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: target, SubPath: part, ReadOnly: readOnly})
		case "tmpfs":
			v := &spec.EmptyVolume{Memory: true}
			how := mount.sub("tmpfs")
			v.Size = how.bytes("size", "volumes: empty.size")
			how.without("mode", "left out: everybody may write there")
			how.nothingLike(nil)
			mount.kept("", "volumes: empty, in memory")
			svc.Mounts = append(svc.Mounts, spec.Mount{Volume: volume(target, spec.Volume{Empty: v}), Path: target, ReadOnly: readOnly})
		case "bind":
			mount.label()
			conv.bind(mount, svc, source, target, readOnly, volume)
		default:
			mount.refuse("type", "Skerry has no volumes of type %s", kind)
		}
		mount.without("consistency", "left out: it is of Docker Desktop")
		mount.nothingLike(nil)
	}
	for i, text := range from.texts("tmpfs", "") {
		at := fmt.Sprintf("tmpfs[%d]", i)
		from.kept(at, "volumes: empty, in memory")
		path, options, _ := strings.Cut(text, ":")
		empty := &spec.EmptyVolume{Memory: true}
		for option := range strings.SplitSeq(options, ",") {
			size, is := strings.CutPrefix(option, "size=")
			n, err := units.RAMInBytes(size)
			switch {
			case is && err == nil:
				empty.Size = skerry.Bytes(n)
			case option != "":
				from.approx(at, "the option %s is left out", option)
			}
		}
		svc.Mounts = append(svc.Mounts, spec.Mount{Volume: volume(path, spec.Volume{Empty: empty}), Path: path})
	}
}

// ofWorkers are paths that every worker has, too.
var ofWorkers = []string{"/etc/localtime", "/etc/timezone", "/etc/machine-id", "/proc", "/sys", "/dev", "/lib/modules", "/run/udev",
	"/var/log", "/etc/ssl/certs", "/usr/share/zoneinfo"}

// bind takes a file or directory of this machine. Instances run on others, so that its content has to come along.
func (conv *compose) bind(mount *fields, svc *spec.ServiceSpec, source, target string, readOnly bool,
	volume func(string, spec.Volume) string) {
	is := func(path string) bool { return source == path || strings.HasPrefix(source, path+"/") }
	if source == "/" || slices.ContainsFunc(ofWorkers, is) {
		mount.approx("source", "volumes: host; it is the worker's %s, and the operator of the site must allow it", source)
		name := volume("host-"+source, spec.Volume{Host: &spec.HostVolume{Path: source}})
		svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: target, ReadOnly: readOnly})
		return
	}
	fi, err := os.Stat(source)
	switch {
	case conv.dir == "":
		mount.refuse("source", "%s", conv.outside(source))
	case strings.HasSuffix(source, "docker.sock"):
		mount.refuse("source", "workers have no Docker daemon")
	case err != nil:
		if readOnly {
			mount.refuse("source", "%v", err)
			return
		}
		fallthrough
	case fi.IsDir() && !readOnly && bare(source):
		mount.approx("source", "volumes: local; a directory on the worker in place of one here, empty at first")
		name := conv.shares(source, svc.Name)
		if name == "" {
			name = volume(filepath.Base(source), spec.Volume{Local: &spec.LocalVolume{}})
			conv.share(source, svc.Name, name)
		}
		svc.Mounts = append(svc.Mounts, spec.Mount{Volume: name, Path: target})
	default:
		files, why := conv.configFiles(source, target)
		if why != "" && fi.IsDir() && !readOnly {
			mount.refuse("source", "what is in %s would have to come along, and to be written to: put it into the image (%s)",
				filepath.Base(source), why)
			return
		}
		if why != "" {
			mount.refuse("source", "%s", why)
			return
		}
		svc.Config = append(svc.Config, files...)
		switch {
		case readOnly:
			mount.kept("source", "config: a copy, taken now")
		case fi.IsDir():
			mount.approx("source", "config: copies, taken now, that the program cannot change; what it adds ends with the instance")
		default:
			mount.approx("source", "config: a copy, taken now, that the program cannot write to")
		}
	}
}

// label takes what a mount says of labels, which named volumes have, too.
func (f *fields) label() {
	if !f.has("bind") {
		return
	}
	how := f.sub("bind")
	how.without("create_host_path", "left out")
	how.without("selinux", "left out: a worker labels what it mounts")
	how.nothingLike(nil)
}

// share notes that a service mounts a volume, and shares gives the name that it has for it, or "".
func (conv *compose) share(source, service, volume string) {
	if conv.shares(source, service) == "" {
		conv.volumes[source] = append(conv.volumes[source], sharer{service, volume})
	}
}

func (conv *compose) shares(source, service string) string {
	for _, s := range conv.volumes[source] {
		if s.service == service {
			return s.volume
		}
	}
	return ""
}

// apart says why a volume is refused: services that could not be made one have it.
func (conv *compose) apart(source string) string {
	var users []string
	for _, s := range conv.volumes[source] {
		users = append(users, s.service)
	}
	slices.Sort(users)
	if users = slices.Compact(users); len(users) < 2 {
		return ""
	}
	return "it is shared by " + strings.Join(users, " and ") +
		": a volume belongs to one service; one of them can be a sidecar of the other"
}

// bare reports whether a directory has nothing in it.
func bare(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// outside says why a file may not be read, which is beside or below the Compose file otherwise: what a stranger's file names elsewhere on
// this machine, such as a key, would leave it with the manifest.
func (conv *compose) outside(file string) string {
	dir, err := filepath.EvalSymlinks(conv.dir)
	if conv.dir == "" || err != nil {
		return "files beside the manifest are not known here: convert the file where it is"
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err.Error()
	}
	if rest, err := filepath.Rel(dir, real); err != nil || !filepath.IsLocal(rest) {
		return filepath.Base(file) + " is not below the directory of the file, and would leave this machine: copy it there if it should"
	}
	return ""
}

// configFiles reads a file, or the files below a directory, for a place in containers. why says why that cannot be.
func (conv *compose) configFiles(source, target string) (out []spec.ConfigFile, why string) {
	total := 0
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if why := conv.outside(path); why != "" {
			return errors.New(why)
		}
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		if !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", filepath.Base(path))
		}
		if total += int(min(fi.Size(), 1<<30)); total > spec.MaxConfigBytes {
			return fmt.Errorf("%s has more than %d bytes: put it into the image", filepath.Base(source), spec.MaxConfigBytes)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) {
			return fmt.Errorf("%s is not text: put it into the image", filepath.Base(path))
		}
		file := spec.ConfigFile{Path: target, Content: string(data)}
		if rest != "." {
			file.Path = filepath.Join(target, rest)
		}
		if fi.Mode()&0o111 != 0 {
			file.Mode = "0555"
		}
		out = append(out, file)
		return nil
	})
	if err != nil {
		return nil, err.Error()
	}
	if len(out) == 0 {
		return nil, filepath.Base(source) + " is empty"
	}
	return out, ""
}

// configs takes the files of configs that a service uses.
func (conv *compose) configs(from *fields, svc *spec.ServiceSpec) {
	for _, use := range from.each("configs") {
		name, target, mode := use.text("source", ""), use.text("target", ""), use.text("mode", "")
		if target == "" {
			target = "/" + name
		}
		use.without("uid", "left out: everybody may read it")
		use.without("gid", "left out: everybody may read it")
		file := spec.ConfigFile{Path: target, Mode: mode}
		def := conv.files[name]
		if def == nil {
			use.refuse("source", "there is no config %s", name)
			continue
		}
		switch content, _ := def.m["content"].(string); {
		case content != "":
			file.Content = content
		case def.m["file"] != nil:
			files, why := conv.configFiles(fmt.Sprint(def.m["file"]), target)
			if why != "" || len(files) != 1 {
				use.refuse("source", "%s", why)
				continue
			}
			file.Content = files[0].Content
		default:
			use.refuse("source", "its content is not here")
			continue
		}
		use.kept("", "config")
		use.nothingLike(nil)
		svc.Config = append(svc.Config, file)
	}
}

// secrets takes the secrets that a service uses. Their files are not read: Skerry keeps secrets apart from manifests.
func (conv *compose) secrets(from *fields, svc *spec.ServiceSpec) {
	name := conv.App.Metadata.Name + "-" + svc.Name
	var given []string
	for _, use := range from.each("secrets") {
		source, target := use.text("source", ""), use.text("target", "")
		if target == "" {
			target = source
		}
		use.without("uid", "left out: they belong to the container's user")
		use.without("gid", "left out: they belong to the container's user")
		use.without("mode", "left out: only the container's user reads it")
		use.nothingLike(nil)
		file, inside := strings.CutPrefix(target, "/run/secrets/")
		if !inside && strings.HasPrefix(target, "/") || strings.Contains(file, "/") {
			use.refuse("target", "the files of a secret are in one directory, /run/secrets here")
			continue
		}
		path := "FILE"
		if def := conv.hidden[source]; def != nil && def.m["file"] != nil {
			path = fmt.Sprint(def.m["file"])
			if rest, err := filepath.Rel(conv.dir, path); err == nil {
				path = rest
			}
		}
		given = append(given, "--from-file "+file+"="+path)
	}
	if len(given) > 0 {
		from.approx("secrets", "secrets: create it before: skerry secret create %s %s", name, strings.Join(given, " "))
		svc.Secrets = []spec.SecretUse{{Name: name, Path: "/run/secrets"}}
	}
}

// sharedVolumes looks at the named volumes, once it is known who mounts them.
func (conv *compose) sharedVolumes(top *fields) {
	names, all := top.named("volumes")
	for _, name := range names {
		from := all[name]
		from.take("name")
		from.without("labels", "left out: nothing here reads them")
		if driver := from.text("driver", ""); driver != "" && driver != "local" {
			from.refuse("driver", "volumes are directories of workers")
		}
		if from.flag("external", "") {
			from.approx("external", "a volume of its own: what is in the other one is not taken over; skerry volume import brings it")
		}
		if remote := conv.nfs[name]; remote != nil {
			remote.tell(from)
		}
		if from.has("driver_opts") {
			from.refuse("driver_opts", "volumes are directories of workers")
			from.take("driver_opts")
		}
		if why := conv.apart(name); why != "" {
			from.refuse("", "%s", why)
		}
		from.nothingLike(nil)
	}
	for _, source := range slices.Sorted(maps.Keys(conv.volumes)) {
		if why := conv.apart(source); why != "" && filepath.IsAbs(source) {
			top.refuse("volumes", "%s: %s", filepath.Base(source), why)
		}
	}
	for _, list := range []map[string]*fields{conv.files, conv.hidden} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			list[name].m = nil // who uses it has said what became of it
		}
	}
}
