package podstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// podRun is a pod that runs, or has. Its lists are fixed; what changes is guarded by the kubelet's lock.
type podRun struct {
	pod    Object
	root   string     // directory with its files
	all    []*process // init containers and sidecars in their order, then main
	over   bool
	killed bool
}

// process is a container.
type process struct {
	name, program string
	spec          Object
	beside        bool // a sidecar
	init          bool // in the list of init containers
	cmd           *exec.Cmd
	lines         bytes.Buffer
	changed       chan struct{}
	runs, ready   bool
	state, last   Object
	restarts      int
}

// containers are those of a pod in the order in which they start.
func containers(pod Object) (out []Object) {
	for _, kind := range []string{"initContainers", "containers"} {
		list, _ := Get(pod, "spec", kind).([]any)
		for _, c := range list {
			if o, ok := c.(Object); ok {
				out = append(out, o)
			}
		}
	}
	return out
}

// newRun makes what is to run of a pod. An image that stands for no program cannot be pulled: then it is nil.
func (k *Kubelet) newRun(pod Object, uid string) *podRun {
	run := &podRun{pod: pod, root: filepath.Join(k.dir, uid)}
	list, _ := Get(pod, "spec", "initContainers").([]any)
	missing := false
	for i, c := range containers(pod) {
		ctr := &process{name: Text(c, "name"), spec: c, init: i < len(list), beside: i < len(list) && Text(c, "restartPolicy") == "Always",
			changed: make(chan struct{}), state: Object{"waiting": Object{"reason": "PodInitializing"}}}
		for image, path := range maps.All(k.Programs) {
			if strings.Contains(Text(c, "image"), image) {
				ctr.program = path
			}
		}
		if ctr.program == "" {
			missing = true
			ctr.state = Object{"waiting": Object{"reason": "ImagePullBackOff", "message": "Back-off pulling image " + Text(c, "image")}}
		}
		run.all = append(run.all, ctr)
	}
	if missing {
		go k.tell(run, "Pending")
		return nil
	}
	return run
}

// endLocked asks main to end, after its preStop, or what runs in its place while it does not.
func (k *Kubelet) endLocked(run *podRun) {
	if main := run.all[len(run.all)-1]; main.runs {
		k.done.Go(func() { k.end(run, main) })
		return
	}
	run.signalLocked(syscall.SIGTERM)
}

func (r *podRun) signalLocked(s syscall.Signal) {
	for _, p := range r.all {
		if p.runs {
			_ = p.cmd.Process.Signal(s)
		}
	}
}

// tell reports the status of a pod. While the node is out of touch nobody hears of it.
func (k *Kubelet) tell(run *podRun, phase string) {
	for {
		k.mu.Lock()
		if !k.off {
			break
		}
		k.mu.Unlock()
		select {
		case <-k.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	lists := map[bool][]Object{true: {}, false: {}}
	ready := "False"
	for _, ctr := range run.all {
		image := Text(ctr.spec, "image")
		status := Object{"name": ctr.name, "image": image, "imageID": image, "ready": ctr.ready, "started": ctr.runs,
			"restartCount": ctr.restarts, "state": maps.Clone(ctr.state)}
		if ctr.last != nil {
			status["lastState"] = ctr.last
		}
		lists[ctr.init] = append(lists[ctr.init], status)
		if !ctr.init && ctr.ready {
			ready = "True"
		}
	}
	status := Object{"phase": phase, "podIP": "127.0.0.1", "containerStatuses": lists[false], "initContainerStatuses": lists[true],
		"conditions": []Object{{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}}}
	k.mu.Unlock()
	k.Do("PATCH", podPath(run.pod)+"/status", Object{"status": status}, nil)
}

// bring runs a pod: init containers one after the other, sidecars beside them from their turn on, then main, and at last the end of the
// sidecars.
func (k *Kubelet) bring(run *podRun) {
	k.write(run.pod, run.root)
	phase := "Succeeded"
	ending := make(chan struct{})
	var beside []chan struct{}
	for _, ctr := range run.all {
		if ctr.beside {
			done, begun := make(chan struct{}), make(chan struct{})
			beside = append(beside, done)
			k.done.Go(func() {
				defer close(done)
				k.keep(run, ctr, begun, ending)
			})
			<-begun
			continue
		}
		before := "Pending"
		if !ctr.init {
			before = "Running"
		}
		if k.once(run, ctr, before, nil) != 0 {
			phase = "Failed"
			break
		}
	}
	close(ending)
	for _, done := range slices.Backward(beside) {
		<-done
	}
	k.tell(run, phase)
	k.mu.Lock()
	run.over = true
	k.mu.Unlock()
}

// keep runs a sidecar again and again until the pod ends.
func (k *Kubelet) keep(run *podRun, ctr *process, begun, ending chan struct{}) {
	for first := true; ; first = false {
		if first {
			k.once(run, ctr, "Pending", func() { close(begun) }, ending)
		} else {
			k.once(run, ctr, "Running", nil, ending)
		}
		select {
		case <-ending:
			return
		case <-k.stop:
			return
		case <-time.After(300 * time.Millisecond):
		}
		k.mu.Lock()
		if run.killed {
			k.mu.Unlock()
			return
		}
		ctr.last, ctr.state = ctr.state, Object{"waiting": Object{"reason": "CrashLoopBackOff"}}
		ctr.restarts++
		k.mu.Unlock()
	}
}

// command is a command in a container, which its program stands for.
func (r *podRun) command(ctr *process, words []string) *exec.Cmd {
	words = slices.Clone(words[min(1, len(words)):])
	for i := range words {
		words[i] = within(r.root, words[i])
	}
	cmd := exec.Command(ctr.program, words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	env, _ := ctr.spec["env"].([]any)
	for _, e := range env {
		cmd.Env = append(cmd.Env, Text(e.(Object), "name")+"="+within(r.root, strings.ReplaceAll(Text(e.(Object), "value"), "$$", "$")))
	}
	return cmd
}

// once runs a container until it has ended, and gives its status. What comes over ending has it asked to end.
func (k *Kubelet) once(run *podRun, ctr *process, phase string, begun func(), ending ...chan struct{}) (code int) {
	args := append(texts(ctr.spec["command"]), texts(ctr.spec["args"])...)
	for i := range args { // the kubelet replaces $(NAME), and undoes that dollars are doubled
		args[i] = strings.ReplaceAll(args[i], "$$", "$")
	}
	cmd := run.command(ctr, args)
	cmd.Stdout = &stamped{k: k, p: ctr}
	cmd.Stderr = cmd.Stdout
	began, probe := now(), ctr.spec["readinessProbe"]
	k.mu.Lock()
	err := errors.New("its pod is to end")
	if !run.killed {
		err = cmd.Start()
	}
	if err == nil {
		ctr.cmd, ctr.runs = cmd, true
	}
	k.mu.Unlock()
	ended := make(chan struct{})
	if err == nil && k.postStart(run, ctr) {
		k.mu.Lock()
		ctr.ready, ctr.state = probe == nil, Object{"running": Object{"startedAt": began}}
		k.mu.Unlock()
		k.tell(run, phase)
	}
	if begun != nil {
		begun()
	}
	state := Object{"exitCode": 128, "reason": "StartError", "startedAt": began}
	if err != nil {
		state["message"] = err.Error()
	} else {
		if probe, ok := probe.(Object); ok {
			k.done.Go(func() { k.probe(run, ctr, probe, ended) })
		}
		if len(ending) > 0 {
			k.done.Go(func() {
				select {
				case <-ending[0]:
					k.end(run, ctr)
				case <-ended:
				}
			})
		}
		err = cmd.Wait()
		state["exitCode"], state["reason"] = 0, "Completed"
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code := exit.ExitCode()
			if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
				code = 128 + int(w.Signal())
			}
			state["exitCode"], state["reason"] = code, "Error"
		}
	}
	close(ended)
	state["finishedAt"] = now()
	code, _ = state["exitCode"].(int)
	k.mu.Lock()
	ctr.runs, ctr.ready, ctr.state = false, false, Object{"terminated": state}
	close(ctr.changed)
	ctr.changed = make(chan struct{})
	k.mu.Unlock()
	if ctr.beside || ctr.init { // the end of main is told with that of its pod, or with that of sidecars
		k.tell(run, phase)
	} else if len(run.all) > 1 {
		k.tell(run, "Running")
	}
	return code
}

// probe tries an HTTP probe until it has passed once.
func (k *Kubelet) probe(run *podRun, ctr *process, probe Object, ended chan struct{}) {
	port, _ := Get(probe, "httpGet", "port").(float64)
	for {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", int(port), Text(probe, "httpGet", "path")))
		if err == nil {
			res.Body.Close()
			if res.StatusCode < 400 {
				k.mu.Lock()
				ctr.ready = ctr.runs
				k.mu.Unlock()
				k.tell(run, "Running")
				return
			}
		}
		select {
		case <-ended:
			return
		case <-k.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Figures of a stand-in: each of its containers uses as much.
const (
	NanoCPU = 7_000_000
	Memory  = 3 << 20
)

// serveFigures answers as a kubelet does: /stats/summary.
func (k *Kubelet) serveFigures(w http.ResponseWriter) {
	pods := []Object{}
	k.mu.Lock()
	for uid, run := range k.runs {
		var list []Object
		for _, p := range run.all {
			if p.runs {
				list = append(list, Object{"name": p.name, "cpu": Object{"usageNanoCores": NanoCPU}, "memory": Object{"workingSetBytes": Memory}})
			}
		}
		pods = append(pods, Object{"podRef": Object{"name": Text(run.pod, "metadata", "name"), "uid": uid,
			"namespace": Text(run.pod, "metadata", "namespace")}, "containers": list})
	}
	k.mu.Unlock()
	_ = json.NewEncoder(w).Encode(Object{"node": Object{"nodeName": k.Name}, "pods": pods})
}
