package podstest

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// postStart does what is to be done once a container runs. If it fails, that is told, and the container is asked to end.
func (k *Kubelet) postStart(run *podRun, ctr *process) (ok bool) {
	if err := k.hook(run, ctr, "postStart"); err != nil {
		k.warn(run, ctr, "FailedPostStartHook", "PostStartHook failed")
		k.end(run, ctr)
		return false
	}
	return true
}

// end asks a container to end, after its preStop.
func (k *Kubelet) end(run *podRun, ctr *process) {
	if err := k.hook(run, ctr, "preStop"); err != nil {
		k.warn(run, ctr, "FailedPreStopHook", "PreStopHook failed")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctr.runs {
		_ = ctr.cmd.Process.Signal(syscall.SIGTERM)
	}
}

func (k *Kubelet) hook(run *podRun, ctr *process, name string) error {
	hook, _ := Get(ctr.spec, "lifecycle", name).(Object)
	if command := texts(Get(hook, "exec", "command")); len(command) > 0 {
		return run.command(ctr, command).Run()
	}
	if port, ok := Get(hook, "httpGet", "port").(float64); ok {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", int(port), Text(hook, "httpGet", "path")))
		if err == nil {
			res.Body.Close()
			if res.StatusCode >= 400 {
				err = errors.New(res.Status)
			}
		}
		return err
	}
	seconds, _ := Get(hook, "sleep", "seconds").(float64)
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	case <-k.stop:
	}
	return nil
}

// warn makes an event about a container.
func (k *Kubelet) warn(run *podRun, ctr *process, reason, text string) {
	list := "containers"
	if ctr.init {
		list = "initContainers"
	}
	Warn(k, run.pod, "Pod", fmt.Sprintf("spec.%s{%s}", list, ctr.name), reason, text)
}

// Warn makes an event that warns of an object of a namespace.
func Warn(by *Kubelet, about Object, kind, field, reason, text string) {
	namespace := Text(about, "metadata", "namespace")
	by.Do("POST", "/api/v1/namespaces/"+namespace+"/events", Object{"type": "Warning", "reason": reason, "message": text, "count": 1,
		"metadata": Object{"generateName": "event-", "namespace": namespace}, "firstTimestamp": now(), "lastTimestamp": now(),
		"involvedObject": Object{"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": Text(about, "metadata", "name"),
			"uid": Text(about, "metadata", "uid"), "fieldPath": field}}, nil)
}
