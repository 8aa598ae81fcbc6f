package convert

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// outcomeOf lists where the volumes and mounts of services are, and what was refused.
func outcomeOf(r *Result) (services []string, refused []string) {
	for _, s := range r.App.Spec.Services {
		line := s.Name
		for _, v := range s.Volumes {
			if v.NFS != nil {
				line += fmt.Sprintf(" %s %s%s,%t", v.NFS.Source(), v.NFS.Version, v.NFS.Options, v.NFS.ReadOnly)
			} else {
				line += " " + v.Name
			}
		}
		for _, m := range s.Mounts {
			line += fmt.Sprintf(" %s=%s,%t", m.Path, m.SubPath, m.ReadOnly)
		}
		services = append(services, line)
	}
	for _, f := range r.Fields {
		if f.Verdict == Refused {
			refused = append(refused, f.Path)
		}
	}
	return services, refused
}

// Named volumes on NFS are mounted by the worker: they are shared, and no directory of one service.
func TestComposeNetworkVolumes(t *testing.T) {
	const file = `services:
  web: {image: web, restart: always, volumes: ["data:/data", "data:/again:ro"]}
  api: {image: api, restart: always, volumes: ["data:/srv"]}
volumes: {data: {driver: local, driver_opts: {%s}}}
`
	for _, c := range []struct{ options, path, refused, note string }{
		{`type: nfs, device: ":/x/y", o: "addr=10.0.0.2,rw,nfsvers=4,soft"`, "10.0.0.2:/x/y [soft],false", "", "--nfs 10.0.0.2:/x/y"},
		{`type: nfs, device: ":/x", o: "addr=nas,ro,nfsvers=4.1,hard,timeo=600,intr,noexec"`, "nas:/x 4.1[hard timeo=600],true", "",
			"intr,noexec: left out"},
		{`type: nfs, device: ":/x", o: "addr=nas,vers=3"`, "nas:/x 3[nolock],false", "", "locked among instances of one worker"},
		{`type: nfs4, device: "nas:/x/../y/", o: "addr=nas.local"`, "nas.local:/y [],false", "", "--nfs nas.local:/y"},
		{`type: nfs, device: "nas:/"`, "nas:/ [],false", "", ""},
		{`type: nfs, device: ":/x", o: "addr=../../etc"`, "", "volumes.data.driver_opts", ""},
		{`type: nfs, device: "/x", o: "addr=nas"`, "", "volumes.data.driver_opts", ""},
		{`type: nfs, device: ":/x"`, "", "volumes.data.driver_opts", ""},
		{`type: cifs, device: "//nas/x"`, "", "volumes.data.driver_opts", ""},
	} {
		r, err := Compose(t.Context(), fmt.Appendf(nil, file, c.options), Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.options, err)
		}
		services, refused := outcomeOf(r)
		at := c.path
		want := []string{"api " + at + " /srv=,false", "web " + at + " /data=,false /again=,true"}
		noted := c.note == "" || slices.ContainsFunc(r.Fields, func(f Field) bool { return strings.Contains(f.Note, c.note) })
		if strings.Join(refused, " ") != c.refused || c.refused == "" && !slices.Equal(services, want) || !noted {
			t.Errorf("%s: services %q, refused %q, noted %t; expected %q and %q: %+v", c.options,
				services, refused, noted, want, c.refused, r.Fields)
		}
	}
}

// Volumes on NFS of pods, and those that claims are bound to, are shared by workloads and replicas.
func TestKubernetesNetworkVolumes(t *testing.T) {
	pods := func(volume string, names ...string) (out string) {
		for _, name := range names {
			out += fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec:
  replicas: 3
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /v, subPath: deep}]}]
      volumes: [{name: v, %[2]s}]
---
`, name, volume)
		}
		return out
	}
	const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mine}
spec: {accessModes: [ReadWriteMany], %sresources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: far}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  mountOptions: [hard]
  nfs: {server: "%s", path: /x%s}
`
	const bound = "persistentVolumeClaim: {claimName: mine}"
	const at, last = " nas:/x ", " /v=deep,false"
	for name, c := range map[string]struct {
		file, mount, refused string
	}{
		"of pods":       {pods("nfs: {server: nas, path: /x}", "a", "b"), at + "[],false" + last, ""},
		"to be read":    {pods("nfs: {server: nas, path: /x, readOnly: true}", "a", "b"), at + "[],true" + last, ""},
		"by its volume": {pods(bound, "a", "b") + fmt.Sprintf(claim, "volumeName: far, ", "nas", ""), at + "[hard],false" + last, ""},
		"by its claim":  {pods(bound, "a", "b") + fmt.Sprintf(claim, "", "nas", "}\n  claimRef: {name: mine"), at + "[hard],false" + last, ""},
		"no server":     {pods("nfs: {server: a/b, path: /x}", "a"), "", "Deployment/a.spec.template.spec.volumes[0].nfs.server"},
	} {
		var docs []Document
		for doc := range strings.SplitSeq(strings.TrimSuffix(c.file, "---\n"), "---\n") {
			docs = append(docs, Document{Data: []byte(doc)})
		}
		r, err := Kubernetes(docs, Options{})
		if r == nil {
			t.Fatalf("%s: %v", name, err)
		}
		services, refused := outcomeOf(r)
		want := []string{"a" + c.mount, "b" + c.mount}
		if strings.Join(refused, " ") != c.refused || c.refused == "" && !slices.Equal(services, want) {
			t.Errorf("%s: services %q, refused %q, expected %q and %q: %v", name, services, refused, want, c.refused, err)
		}
		onNFS := func(v spec.Volume) bool { return v.NFS != nil }
		if c.refused == "" && !slices.ContainsFunc(r.App.Spec.Services[0].Volumes, onNFS) {
			t.Errorf("%s: nothing holds it to the network file system", name)
		}
	}
}
