package convert

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// kubeUse is a volume of a pod, for the containers that mount it.
type kubeUse struct {
	at      *fields
	volume  *spec.Volume        // a directory
	files   map[string]kubeFile // or files of ConfigMaps, by their path in it
	secrets []spec.SecretUse    // and of Secrets
	mounted bool

	readOnly bool // it is, whatever a mount says
}

// kubeFile is a file of a ConfigMap.
type kubeFile struct{ content, mode string }

// volumes takes the volumes of a pod.
func (it *pod) volumes() {
	for _, from := range it.spec.each("volumes") {
		name := from.text("name", "")
		if it.load.claims[name] != nil {
			from.approx("", "left out: the volume of this name is made for a claim")
			continue
		}
		use := &kubeUse{at: from, files: map[string]kubeFile{}}
		said := false
		for _, value := range from.m {
			said = said || value != nil
		}
		if it.source(from, use); !said {
			from.approx("", "an empty volume")
			use.volume = &spec.Volume{Empty: &spec.EmptyVolume{}}
		}
		if use.volume != nil {
			use.volume.Name = cmp.Or(Name(name), "data")
		}
		from.nothingLike(kubeVolumeRefusals)
		it.uses[name] = use
	}
}

// kubeVolumeRefusals is a table: why a volume cannot be had.
var kubeVolumeRefusals = map[string]string{
	"csi":         "volumes are directories of workers",
	"downwardAPI": "what is known of an instance is in its environment", "image": "volumes are directories of workers",
}

// source takes what a volume is made of.
func (it *pod) source(from *fields, use *kubeUse) {
	if from.m["emptyDir"] != nil {
		empty, how := &spec.EmptyVolume{}, from.sub("emptyDir")
		empty.Size = how.bytes("sizeLimit", "volumes: empty.size")
		switch medium := how.text("medium", ""); {
		case medium == "Memory" && empty.Size == 0:
			empty.Memory = true
			how.approx("medium", "volumes: empty, in memory; at most 64Mi unless sizeLimit says more")
		case medium == "Memory":
			empty.Memory = true
			how.kept("medium", "volumes: empty.memory")
		case medium != "":
			how.refuse("medium", "an empty volume is on the disk or in memory")
		}
		from.kept("emptyDir", "volumes: empty")
		use.volume = &spec.Volume{Empty: empty}
		how.nothingLike(nil)
	}
	if host := from.sub("hostPath"); host.m != nil {
		file := host.text("path", "")
		if strings.HasSuffix(file, "docker.sock") || strings.HasSuffix(file, "containerd.sock") {
			host.refuse("path", "workers have no such daemon for their instances")
		} else {
			host.approx("path", "volumes: host; it is the worker's %s, and the operator of the site must allow it", file)
		}
		host.without("type", "left out: it must be there")
		host.nothingLike(nil)
		use.volume = &spec.Volume{Host: &spec.HostVolume{Path: strings.TrimSuffix(file, "/")}}
	}
	if from.has("nfs") {
		if volume := from.nfs(from); volume != nil {
			use.volume = &spec.Volume{NFS: volume}
		}
	}
	if claim := from.sub("persistentVolumeClaim"); claim.m != nil {
		it.claimUse(claim, use)
	}
	if ephemeral := from.sub("ephemeral"); ephemeral.m != nil {
		local := it.claimed(ephemeral.sub("volumeClaimTemplate"))
		ephemeral.nothingLike(nil)
		use.volume = &spec.Volume{Empty: &spec.EmptyVolume{Size: local.Size}}
		ephemeral.kept("", "volumes: empty")
	}
	for _, kind := range kubeDisks {
		if disk := from.sub(kind); disk.m != nil {
			disk.m = nil // what it says is of the cloud
			it.claimUse(disk, use)
		}
	}
	if config := from.sub("configMap"); config.m != nil {
		it.configFiles(config, use, config.text("defaultMode", ""))
	}
	if secret := from.sub("secret"); secret.m != nil {
		it.secretFiles(secret, use, secret.text("defaultMode", ""))
	}
	if all := from.sub("projected"); all.m != nil {
		mode := all.text("defaultMode", "")
		if empty(all.m["sources"]) {
			all.refuse("sources", "there are none")
		}
		for _, one := range all.each("sources") {
			if config := one.sub("configMap"); config.m != nil {
				it.configFiles(config, use, mode)
			}
			if secret := one.sub("secret"); secret.m != nil {
				it.secretFiles(secret, use, mode)
			}
			one.nothingLike(map[string]string{"serviceAccountToken": "programs get no account of Skerry",
				"downwardAPI": kubeVolumeRefusals["downwardAPI"]})
		}
		all.nothingLike(nil)
	}
}

// kubeDisks is a table of volumes that a cloud lends: for Skerry a directory on the worker.
var kubeDisks = []string{"gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder"}

// persistent takes a PersistentVolume. The claim that it is for gets a directory of its worker.
func (conv *kube) persistent(obj *object) {
	from := obj.sub("spec")
	if from.has("nfs") {
		volume := from.nfs(obj.fields)
		from.leave(map[string]string{"capacity": "left out: it is the server's",
			"accessModes": "left out: every instance may mount it", "claimRef": "left out: the claim has it",
			"storageClassName": "left out: workers mount it", "volumeMode": "left out: it is a directory",
			"persistentVolumeReclaimPolicy": "left out: nothing here deletes what is on the server",
			"nodeAffinity":                  "left out: placement.labels choose workers"})
		from.nothingLike(nil)
		if volume != nil && !obj.used {
			obj.approx("", "left out: no claim of a workload of these files names it, by volumeName, or is named by it, by claimRef")
		}
		return
	}
	for _, kind := range []string{"hostPath", "local"} {
		if from.has(kind) {
			obj.approx("", "left out: a claim gets a directory of its worker, which is empty at first; or mount hostPath")
			return
		}
	}
	obj.refuse("", "volumes are directories of workers")
}

// claimUse takes a volume that is made for a claim: a directory on the worker.
func (it *pod) claimUse(claim *fields, use *kubeUse) {
	svc := &it.load.svc
	name := claim.text("claimName", "")
	readOnly := claim.flag("readOnly", "")
	claim.nothingLike(nil)
	if it.claimOnNetwork(claim, name, use) {
		use.readOnly = use.readOnly || readOnly
		return
	}
	use.volume = &spec.Volume{Local: &spec.LocalVolume{}}
	switch replicas := svc.Replicas; {
	case svc.Mode != "":
		claim.refuse("", "local volumes belong to the replicas of a service; mode %s has none", svc.Mode)
	case replicas != nil && *replicas > 1:
		claim.refuse("", "each of %d replicas would have a volume of its own, which is what a StatefulSet asks for", *replicas)
	case name == "":
		claim.approx("", "volumes: local, empty at first; it stays on its worker")
	case it.find("PersistentVolumeClaim", name) == nil:
		claim.approx("", "volumes: local, empty at first; the claim is not in these files")
	default:
		obj := it.find("PersistentVolumeClaim", name)
		obj.used = true
		it.claims[name] = append(it.claims[name], it.load)
		use.volume.Local = kubeSize(obj.m)
		claim.approx("", "volumes: local, empty at first; it stays on its worker")
	}
}

// bound gives the PersistentVolume on NFS that a claim is bound to by name; nil: there is none.
func (conv *kube) bound(claim *object) *object {
	of, _ := claim.m["spec"].(map[string]any)
	for _, obj := range conv.objects["PersistentVolume"] {
		body, _ := obj.m["spec"].(map[string]any)
		if _, is := body["nfs"].(map[string]any); is && (textAt(of, "volumeName") == obj.name || textAt(body, "claimRef", "name") == claim.name) {
			return obj
		}
	}
	return nil
}

// claimOnNetwork takes a claim that is bound to a volume on NFS, which any number of workloads and replicas may mount.
func (it *pod) claimOnNetwork(claim *fields, name string, use *kubeUse) bool {
	obj := it.find("PersistentVolumeClaim", name)
	if obj == nil {
		return false
	}
	persistent := it.bound(obj)
	if persistent == nil {
		return false
	}
	body, _ := persistent.m["spec"].(map[string]any)
	remote, _ := body["nfs"].(map[string]any)
	var options []string
	if list, is := body["mountOptions"].([]any); is {
		for _, one := range list {
			text, _ := asText(one)
			options = append(options, text)
		}
	}
	volume, _, ok := networkVolume(textAt(remote, "server"), textAt(remote, "path"), options)
	if !ok {
		return false // the PersistentVolume says so
	}
	obj.used, obj.remote, persistent.used = true, persistent.name, true
	volume.ReadOnly = volume.ReadOnly || remote["readOnly"] == true
	use.volume = &spec.Volume{NFS: volume}
	claim.kept("", "volumes: nfs, as PersistentVolume %s", persistent.name)
	return true
}

// kubeSize gives a volume of the size that a claim asks for.
func kubeSize(claim map[string]any) *spec.LocalVolume {
	of, _ := claim["spec"].(map[string]any)
	resources, _ := of["resources"].(map[string]any)
	probe := newFields("", map[string]any{"storage": textAt(resources, "requests", "storage")}, &Result{})
	return &spec.LocalVolume{Size: probe.bytes("storage", "")}
}

// claimed takes a claim, of an object or a template.
func (conv *kube) claimed(claim *fields) *spec.LocalVolume {
	local := kubeSize(claim.m)
	from := claim.sub("spec")
	resources := from.sub("resources")
	requests := resources.sub("requests")
	requests.bytes("storage", "volumes: local.size")
	requests.nothingLike(nil)
	resources.sub("limits").nothingLike(nil)
	resources.nothingLike(nil)
	for _, mode := range from.texts("accessModes", "") {
		switch mode {
		case "ReadWriteOnce", "ReadWriteOncePod":
			from.kept("accessModes", "volumes: local")
		case "ReadWriteMany", "ReadOnlyMany":
			from.approx("accessModes", "left out: the volume is for one instance, on its worker")
		default:
			from.refuse("accessModes", "%q is no such mode", mode)
		}
	}
	from.leave(map[string]string{
		"storageClassName":          "left out: the volume is a directory of the worker",
		"volumeName":                "left out: the volume is made when it is needed",
		"selector":                  "left out: the volume is made when it is needed",
		"volumeAttributesClassName": "left out: the volume is a directory of the worker",
	})
	if mode := from.text("volumeMode", ""); mode == "Filesystem" {
		from.kept("volumeMode", "as always")
	} else if mode != "" {
		from.refuse("volumeMode", "volumes are directories")
	}
	from.nothingLike(map[string]string{"dataSource": "skerry volume import brings data", "dataSourceRef": "skerry volume import brings data"})
	if _, is := claim.m["metadata"]; is {
		meta := claim.sub("metadata")
		meta.take("name")
		meta.leave(map[string]string{"labels": "left out: volumes have none", "annotations": "left out: nothing here reads them",
			"creationTimestamp": "left out", "namespace": "left out"})
		meta.nothingLike(nil)
	}
	claim.take("kind")
	claim.take("apiVersion")
	claim.without("status", "left out: it is what Kubernetes had observed")
	claim.nothingLike(nil)
	return local
}

// claim takes a PersistentVolumeClaim. The workload that uses it has its volume by now.
func (conv *kube) claim(obj *object) {
	users := conv.claims[obj.name]
	if obj.remote != "" {
		obj.kept("", "volumes: nfs, as PersistentVolume %s", obj.remote)
		obj.fields.take("spec") // it only says which volume is meant
		obj.fields.take("status")
		return
	}
	conv.claimed(obj.fields)
	switch {
	case len(users) > 1:
		obj.refuse("", "it is shared by %s and %s: a volume belongs to one service; one of them can be a sidecar of the other",
			users[0].svc.Name, users[1].svc.Name)
	case !obj.used:
		obj.approx("", "left out: no workload of these files uses it")
	}
}

// configFiles takes the files of a ConfigMap.
func (it *pod) configFiles(from *fields, use *kubeUse, mode string) {
	name, optional := from.text("name", ""), from.flag("optional", "")
	obj := it.find("ConfigMap", name)
	keys := it.items(from, mode)
	from.nothingLike(nil)
	if obj == nil {
		if optional {
			from.approx("", "left out: there is no ConfigMap %s in these files", name)
		} else {
			from.refuse("", "there is no ConfigMap %s in these files: give it, too", name)
		}
		return
	}
	data := it.data(obj)
	from.kept("", "config")
	for _, key := range slices.Sorted(maps.Keys(data)) {
		content := data[key]
		if len(keys) == 0 {
			use.files[key] = kubeFile{it.peersIn(obj.fields, "data."+key, content), octal(mode)}
		}
		for _, item := range keys {
			if item.key == key {
				use.files[item.path] = kubeFile{it.peersIn(obj.fields, "data."+key, content), item.mode}
			}
		}
	}
	for _, item := range keys {
		if _, there := data[item.key]; !there && !optional {
			from.refuse("items", "ConfigMap %s has no %s", name, item.key)
		}
	}
}

// kubeItem is a file that is taken of a ConfigMap or Secret.
type kubeItem struct{ key, path, mode string }

func (it *pod) items(from *fields, mode string) (out []kubeItem) {
	for _, item := range from.each("items") {
		one := kubeItem{item.text("key", ""), item.text("path", ""), octal(cmp.Or(item.text("mode", ""), mode))}
		item.nothingLike(nil)
		out = append(out, one)
	}
	return out
}

// octal writes permissions, which are given as a decimal number, as a manifest has them.
func octal(mode string) string {
	n, err := strconv.Atoi(mode)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%04o", n&0o777)
}

// secretFiles takes the files of a Secret. Skerry keeps secrets apart from manifests.
func (it *pod) secretFiles(from *fields, use *kubeUse, mode string) {
	name := cmp.Or(from.text("secretName", ""), from.text("name", ""))
	from.without("optional", "left out: it must be there")
	keys := it.items(from, mode)
	from.nothingLike(nil)
	var given []string
	obj := it.find("Secret", name)
	if obj != nil {
		for _, key := range slices.Sorted(maps.Keys(it.data(obj))) {
			if len(keys) == 0 {
				given = append(given, "--from-file "+key+"=FILE")
			}
		}
	}
	secret := spec.SecretUse{Name: Name(name), Mode: octal(mode)}
	for _, item := range keys {
		if strings.Contains(item.path, "/") {
			from.refuse("items", "the files of a secret are in one directory")
		}
		given = append(given, "--from-file "+item.path+"=FILE")
		secret.Name = Name(name + "-" + it.load.svc.Name)
	}
	if len(given) == 0 {
		given = []string{"--from-file NAME=FILE"}
	}
	from.approx("", "secrets: create it before: skerry secret create %s %s", secret.Name, strings.Join(given, " "))
	use.secrets = append(use.secrets, secret)
}

// mounts takes where volumes are in a container.
func (it *pod) mounts(from *fields, out *spec.Container) {
	for _, mount := range from.each("volumeMounts") {
		name, at, below := mount.text("name", ""), mount.text("mountPath", ""), mount.text("subPath", "")
		readOnly := mount.flag("readOnly", "")
		mount.without("recursiveReadOnly", "left out: mounts have nothing mounted below them")
		if how := mount.text("mountPropagation", ""); how == "None" {
			mount.kept("mountPropagation", "as always")
		} else if how != "" {
			mount.refuse("mountPropagation", "what is mounted in an instance stays there")
		}
		mount.nothingLike(map[string]string{"subPathExpr": "the path is not known before the program runs"})
		at = path.Clean("/" + at)
		use := it.uses[name]
		if template := it.load.claims[name]; template != nil && use == nil {
			part := mount.part("subPath", below)
			out.Mounts = append(out.Mounts, spec.Mount{Volume: Name(name), Path: at, SubPath: part, ReadOnly: readOnly})
			mount.kept("", "mounts")
			continue
		}
		if use == nil {
			mount.refuse("name", "there is no volume %q", name)
			continue
		}
		use.mounted = true
		it.mount(mount, use, at, below, readOnly, out)
	}
}

func (it *pod) mount(mount *fields, use *kubeUse, at, below string, readOnly bool, out *spec.Container) {
	svc := &it.load.svc
	if use.volume != nil {
		volume := *use.volume
		mount.kept("", "mounts")
		if !slices.ContainsFunc(svc.Volumes, func(v spec.Volume) bool { return v.Name == volume.Name }) {
			svc.Volumes = append(svc.Volumes, volume)
		}
		part := mount.part("subPath", below)
		out.Mounts = append(out.Mounts, spec.Mount{Volume: volume.Name, Path: at, SubPath: part, ReadOnly: readOnly || use.readOnly})
		return
	}
	if len(use.secrets) > 0 && below != "" && len(use.files) == 0 {
		mount.refuse("subPath", "the files of a secret are in a directory of their own: %s, say", spec.SecretDir)
		return
	}
	mount.kept("", "config, or secrets")
	for _, secret := range use.secrets {
		secret.Path = at
		if !slices.Contains(svc.Secrets, secret) {
			svc.Secrets = append(svc.Secrets, secret)
		}
	}
	found := false
	for _, name := range slices.Sorted(maps.Keys(use.files)) {
		file := spec.ConfigFile{Path: path.Join(at, name), Content: use.files[name].content, Mode: use.files[name].mode}
		if rest, inside := strings.CutPrefix(name, below); below != "" {
			if !inside || rest != "" && rest[0] != '/' {
				continue
			}
			file.Path = path.Join(at, rest)
		}
		if found = true; !slices.Contains(svc.Config, file) {
			svc.Config = append(svc.Config, file)
		}
	}
	if below != "" && !found && len(use.files) > 0 {
		mount.refuse("subPath", "the volume has no file %q", below)
	}
}

// unmounted says of volumes that no container mounts them.
func (it *pod) unmounted() {
	for _, name := range slices.Sorted(maps.Keys(it.uses)) {
		if use := it.uses[name]; !use.mounted {
			use.at.approx("", "left out: no container mounts it")
		}
	}
	update := &it.load.svc.Update
	if it.load.svc.KeepsData() && update.MaxSurge != nil && *update.MaxSurge > 0 {
		update.MaxSurge, update.MaxUnavailable = nil, nil
		it.spec.approx("volumes", "update.maxSurge is left out: two instances never have one local volume")
	}
}
