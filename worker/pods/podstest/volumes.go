package podstest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	bindCompleted = "pv.kubernetes.io/bind-completed"
	defaultClass  = "storageclass.kubernetes.io/is-default-class"
)

// claimLocked completes a new claim.
func (s *Server) claimLocked(claim Object) {
	claim["status"] = Object{"phase": "Pending"}
	claim["metadata"].(Object)["finalizers"] = []any{"kubernetes.io/pvc-protection"}
	if spec := claim["spec"].(Object); spec["storageClassName"] == nil {
		for name, class := range s.objects["storageclasses"] {
			if Text(class, "metadata", "annotations", defaultClass) == "true" {
				spec["storageClassName"] = name
			}
		}
	}
}

// invalidLocked says why an object may not be changed so; empty: it may.
func (s *Server) invalidLocked(at place, have, next Object) string {
	path := []string{"spec", "resources", "requests", "storage"}
	class := s.objects["storageclasses"][Text(have, "spec", "storageClassName")]
	if at.kind != "persistentvolumeclaims" || Text(have, path...) == Text(next, path...) {
		return ""
	}
	if Text(have, "status", "phase") != "Bound" {
		return "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
	}
	if Get(class, "allowVolumeExpansion") != true {
		return "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	}
	return ""
}

// unboundLocked reports whether a pod has to wait for its claims, and why it can not be scheduled. A claim that waits for its first pod
// is told where that is to be.
func (s *Server) unboundLocked(pod Object, node string) (waits bool, why string) {
	volumes, _ := Get(pod, "spec", "volumes").([]any)
	for _, volume := range volumes {
		name := Text(volume.(Object), "persistentVolumeClaim", "claimName")
		if name == "" {
			continue
		}
		claim := s.objects["persistentvolumeclaims"][Text(pod, "metadata", "namespace")+"/"+name]
		switch {
		case claim == nil:
			return true, fmt.Sprintf("persistentvolumeclaim %q not found", name)
		case Text(claim, "metadata", "deletionTimestamp") != "":
			return true, fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
		case Text(claim, "status", "phase") == "Bound":
		case Text(claim, "metadata", "annotations", selectedNode) != node:
			next := merged(claim, Object{"metadata": Object{"annotations": Object{selectedNode: node}}}).(Object)
			s.noteLocked("persistentvolumeclaims", Text(pod, "metadata", "namespace")+"/"+name, "MODIFIED", next)
			waits = true
		default:
			waits = true
		}
	}
	return waits, ""
}

// scheduleLocked looks again at pods that wait for claims, after one of these changed.
func (s *Server) scheduleLocked(kind string) {
	if kind != "persistentvolumeclaims" {
		return
	}
	for key, pod := range s.objects["pods"] {
		if Text(pod, "spec", "nodeName") == "" && Text(pod, "metadata", "deletionTimestamp") == "" {
			next := merged(pod, Object{}).(Object)
			if s.bindLocked(next); Text(next, "spec", "nodeName") != "" {
				next["status"] = Object{"phase": "Pending"}
				s.noteLocked("pods", key, "MODIFIED", next)
			}
		}
	}
}

// mount makes an empty directory, or has the directory of a claim appear, where a container of a pod finds it.
func (k *Kubelet) mount(pod Object, root string, volumes []any, mount Object) {
	at := filepath.Join(root, Text(mount, "mountPath"))
	for _, each := range volumes {
		volume := each.(Object)
		if Text(volume, "name") != Text(mount, "name") {
			continue
		}
		if _, err := os.Lstat(at); err == nil {
			return
		}
		if volume["emptyDir"] != nil {
			_ = os.MkdirAll(at, 0o755)
		}
		name := Text(volume, "persistentVolumeClaim", "claimName")
		if name == "" {
			return
		}
		var claim, from Object
		k.Do("GET", "/api/v1/namespaces/"+Text(pod, "metadata", "namespace")+"/persistentvolumeclaims/"+name, nil, &claim)
		k.Do("GET", "/api/v1/persistentvolumes/"+Text(claim, "spec", "volumeName"), nil, &from)
		if path := Text(from, "spec", "local", "path"); path != "" && os.MkdirAll(filepath.Dir(at), 0o755) == nil {
			_ = os.Symlink(path, at)
		}
	}
}

// Provisioner is what gives claims their volumes, local ones, and takes them away: the part of several controllers of Kubernetes, of which
// none runs in tests.
type Provisioner struct {
	Kubelet        // asks the API server
	Class   string // of storage
	Dir     string // where the directories are, on each node

	mu     sync.Mutex
	refuse string
	warned map[string]string
}

// Start makes the class, which is the default one, and begins to work until the test ends.
func (p *Provisioner) Start(t testing.TB) {
	t.Helper()
	code, text := p.Do("POST", "/apis/storage.k8s.io/v1/storageclasses", Object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
		"metadata":    Object{"name": p.Class, "annotations": Object{defaultClass: "true"}},
		"provisioner": "skerry.test/local", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true}, nil)
	if code != 201 && code != 200 {
		t.Fatalf("make a storage class: status %d: %s", code, text)
	}
	p.warned = map[string]string{}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			p.work()
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// Refuse has it make no volumes, and say why; empty: it makes them.
func (p *Provisioner) Refuse(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = why
}

// Claims are those of all namespaces.
func (p *Provisioner) Claims() []Object {
	var list struct {
		Items []Object `json:"items"`
	}
	p.Do("GET", "/api/v1/persistentvolumeclaims", nil, &list)
	return list.Items
}

func (p *Provisioner) work() {
	p.mu.Lock()
	why := p.refuse
	p.mu.Unlock()
	for _, claim := range p.Claims() {
		switch node := Text(claim, "metadata", "annotations", selectedNode); {
		case Text(claim, "spec", "storageClassName") != p.Class:
		case Text(claim, "metadata", "deletionTimestamp") != "":
			p.remove(claim)
		case Text(claim, "status", "phase") == "Bound":
			p.grow(claim)
		case node == "":
		case why == "":
			p.bind(claim, node)
		case p.warned[Text(claim, "metadata", "uid")] != why:
			p.warned[Text(claim, "metadata", "uid")] = why
			Warn(&p.Kubelet, claim, "PersistentVolumeClaim", "", "ProvisioningFailed", why)
		}
	}
}

func volumeOf(claim Object) string { return "pv-" + Text(claim, "metadata", "uid") }

func claimPath(claim Object) string {
	return "/api/v1/namespaces/" + Text(claim, "metadata", "namespace") + "/persistentvolumeclaims/" + Text(claim, "metadata", "name")
}

// bind gives a claim a directory on the node of its first pod.
func (p *Provisioner) bind(claim Object, node string) {
	name, size := volumeOf(claim), Object{"storage": Text(claim, "spec", "resources", "requests", "storage")}
	dir := filepath.Join(p.Dir, name)
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}
	modes := []string{"ReadWriteOnce"}
	p.Do("POST", "/api/v1/persistentvolumes", Object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": Object{"name": name},
		"spec": Object{"capacity": size, "accessModes": modes, "storageClassName": p.Class, "persistentVolumeReclaimPolicy": "Delete",
			"local": Object{"path": dir}, "claimRef": Object{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
				"namespace": Text(claim, "metadata", "namespace"), "name": Text(claim, "metadata", "name"), "uid": Text(claim, "metadata", "uid")},
			"nodeAffinity": Object{"required": Object{"nodeSelectorTerms": []Object{{"matchExpressions": []Object{
				{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}}}}}}}}}, nil)
	p.Do("PATCH", claimPath(claim), Object{"spec": Object{"volumeName": name}, "metadata": Object{"annotations": Object{
		bindCompleted: "yes", "pv.kubernetes.io/bound-by-controller": "yes"}}}, nil)
	p.Do("PATCH", "/api/v1/persistentvolumes/"+name+"/status", Object{"status": Object{"phase": "Bound"}}, nil)
	p.Do("PATCH", claimPath(claim)+"/status", Object{"status": Object{"phase": "Bound", "accessModes": modes, "capacity": size}}, nil)
}

// grow says that a claim has the size that it asks for.
func (p *Provisioner) grow(claim Object) {
	if size := Text(claim, "spec", "resources", "requests", "storage"); size != Text(claim, "status", "capacity", "storage") {
		p.Do("PATCH", "/api/v1/persistentvolumes/"+volumeOf(claim), Object{"spec": Object{"capacity": Object{"storage": size}}}, nil)
		p.Do("PATCH", claimPath(claim)+"/status", Object{"status": Object{"capacity": Object{"storage": size}}}, nil)
	}
}

// remove lets a claim go that is deleted, once no pod has it, and its directory with it.
func (p *Provisioner) remove(claim Object) {
	var pods struct {
		Items []Object `json:"items"`
	}
	p.Do("GET", "/api/v1/namespaces/"+Text(claim, "metadata", "namespace")+"/pods", nil, &pods)
	for _, pod := range pods.Items {
		volumes, _ := Get(pod, "spec", "volumes").([]any)
		for _, v := range volumes {
			if Text(v.(Object), "persistentVolumeClaim", "claimName") == Text(claim, "metadata", "name") {
				return
			}
		}
	}
	name := volumeOf(claim)
	p.Do("PATCH", claimPath(claim), Object{"metadata": Object{"finalizers": nil}}, nil)
	p.Do("DELETE", "/api/v1/persistentvolumes/"+name, nil, nil)
	p.Do("PATCH", "/api/v1/persistentvolumes/"+name, Object{"metadata": Object{"finalizers": nil}}, nil)
	_ = os.RemoveAll(filepath.Join(p.Dir, name))
}
