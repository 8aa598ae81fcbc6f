//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const pythonAgent = "../examples/agent/skerry_agent.py"

// devices is a root and a site whose workers are agents of others. The cluster may be stopped and started.
type devices struct {
	*site
	certLife    time.Duration
	stopCluster func()
}

func newDevices(t *testing.T, certLife time.Duration) *devices {
	t.Helper()
	d := &devices{certLife: certLife, site: &site{t: t, dir: t.TempDir(), log: logger(t)}}
	var err error
	if d.Root, err = parents.OpenRoot(t.Context(), parents.RootConfig{Common: node.Common{Dir: filepath.Join(d.dir, "root"),
		Log: d.log.With("role", "root")}, Server: root.ServerOptions{Link: "127.0.0.1:0"}}); err != nil {
		t.Fatal(err)
	}
	d.run("root", d.Root.Run, d.Root.Close)
	if err := parents.Seed(t.Context(), d.Root); err != nil {
		t.Fatal(err)
	}
	d.await("the root listens", func() bool { return d.Root.LinkAddr() != nil })
	token, _, err := d.Root.Authority().CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierCluster})
	if err != nil {
		t.Fatal(err)
	}
	d.startCluster(token, "127.0.0.1:0")
	t.Cleanup(func() { d.stopCluster() })
	return d
}

func (d *devices) startCluster(token, mqtt string) {
	d.t.Helper()
	k, err := parents.OpenCluster(d.t.Context(), parents.ClusterConfig{Common: node.Common{Dir: filepath.Join(d.dir, "cluster"),
		Log: d.log.With("role", "cluster")}, Server: cluster.ServerOptions{Link: "127.0.0.1:0", MQTT: mqtt, CertLife: d.certLife,
		Options: clustercore.Options{Admission: clustercore.Admission{Trusted: []string{parents.DefaultOrg}}}},
		Join: node.Join{Name: "harbour", Token: token, Parent: []string{d.Root.LinkAddr().String()}}})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	d.Cluster = k
	d.stopCluster = func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error("cluster:", err)
		}
		if err := k.Close(); err != nil {
			d.t.Error("close cluster:", err)
		}
	}
	d.await("the cluster listens", func() bool { return k.MQTTAddr() != nil })
}

// device is a machine with the Python agent.
type device struct {
	t    *testing.T
	name string
	addr string // of the cluster
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// join starts an agent that joins under a name. At the end of the test all that it started ends.
func (d *devices) join(name string) *device {
	d.t.Helper()
	token, _, err := d.Cluster.Authority().CreateToken(d.t.Context(), auth.TokenOptions{Tier: wire.TierWorker, Name: name})
	if err != nil {
		d.t.Fatal(err)
	}
	v := newDevice(d.t, name, d.Cluster.MQTTAddr().String(), filepath.Join(d.dir, "device-"+name))
	v.start("--join", token)
	return v
}

// newDevice makes a device, whose agent is to be started. At the end of the test all that it started ends.
func newDevice(t *testing.T, name, addr, dir string) *device {
	t.Helper()
	for _, tool := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: scripts/deps installs it", err)
		}
	}
	v := &device{t: t, name: name, addr: addr, dir: dir}
	t.Cleanup(func() {
		v.kill(syscall.SIGKILL)
		v.endAll()
		if text, err := os.ReadFile(v.dir + ".log"); err == nil && (t.Failed() || testing.Verbose()) {
			t.Logf("agent %s:\n%s", name, text)
		}
	})
	return v
}

// endAll ends supervisors and processes, as switching the device off does.
func (v *device) endAll() {
	v.t.Helper()
	for {
		var left int
		list, _ := os.ReadDir("/proc")
		for _, e := range list {
			pid, err := strconv.Atoi(e.Name())
			if cmdline, cerr := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && cerr == nil &&
				strings.Contains(string(cmdline), v.dir+"/instances/") {
				_ = syscall.Kill(pid, syscall.SIGKILL) // supervisors
				left++
			}
		}
		for _, pid := range v.pids() {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			left++
		}
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (v *device) start(args ...string) {
	v.t.Helper()
	log, err := os.OpenFile(v.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		v.t.Fatal(err)
	}
	defer log.Close()
	v.cmd = exec.Command("python3", append([]string{"-B", pythonAgent, "--cluster", v.addr, "--data", v.dir, "--keepalive", "1", "--address",
		"127.0.0.1"}, args...)...)
	v.cmd.Stdout, v.cmd.Stderr = log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.done = make(chan struct{})
	go func() {
		defer close(v.done)
		_ = v.cmd.Wait()
	}()
}

// kill ends the agent alone.
func (v *device) kill(sig syscall.Signal) {
	_ = v.cmd.Process.Signal(sig)
	<-v.done
}

// pids finds the processes of the instances on a device that run: each holds its supervisor, and that a lock.
func (v *device) pids() map[string]int {
	out := map[string]int{}
	list, _ := filepath.Glob(filepath.Join(v.dir, "instances", "*", "*", "started.json"))
	for _, path := range list {
		data, err := os.ReadFile(path)
		var pid int
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(string(data), `{"pid": %d,`, &pid); err != nil {
			v.t.Errorf("%s: %v", path, err)
		}
		if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(cmdline) > 0 {
			out[strings.Split(strings.TrimPrefix(path, v.dir), "/")[2]] = pid
		}
	}
	return out
}

// killSupervisor ends the process that looks after an instance, and not the instance.
func (v *device) killSupervisor(id string) {
	v.t.Helper()
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if cmdline, cerr := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && cerr == nil &&
			strings.Contains(string(cmdline), v.dir+"/instances/"+id+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return
		}
	}
	v.t.Errorf("%s has no supervisor", id)
}

func process(name string, command ...string) spec.ServiceSpec {
	s := spec.ServiceSpec{Name: name, Runtime: "native", Resources: spec.Resources{CPU: 10, Memory: 8 * skerry.MiB}}
	s.Command = command
	return s
}

func (d *devices) worker(name string) *view.WorkerView {
	list, _ := d.Cluster.Workers(context.Background())
	for _, w := range list {
		if string(w.Name) == name {
			return &w
		}
	}
	return nil
}

// TestExternalAgent takes an agent in Python through what a worker does.
func TestExternalAgent(t *testing.T) {
	d := newDevices(t, 0)
	v := d.join("plc-7")
	d.await("the device is a worker", func() bool { w := d.worker("plc-7"); return w != nil && w.Connected && w.Facts != nil })
	if w := d.worker("plc-7"); w.Carrier != wire.CarrierMQTT || w.Beats || !strings.HasPrefix(w.Version, "skerry-agent.py") ||
		w.Available.CPU == 0 {
		t.Errorf("%+v", w)
	}

	d.do(app("plant", process("pump", "/bin/sh", "-c", `echo "$SKERRY_WORKER"; exec sleep 1000`)))
	d.await("it runs", d.ready(1))
	i := d.only()
	pids := v.pids()
	if pids[string(i.ID)] == 0 {
		t.Fatalf("%s does not run: %v", i.ID, pids)
	}

	t.Log("its process dies")
	_ = syscall.Kill(pids[string(i.ID)], syscall.SIGKILL)
	d.await("it was started again", func() bool {
		i := d.only()
		return i.Restarts == 1 && i.State == skerry.Running && i.Exit != nil && i.Exit.Signal == "SIGKILL" && d.ready(1)()
	})

	t.Log("its agent dies")
	before := v.pids()
	v.kill(syscall.SIGKILL)
	v.start()
	d.await("the agent is back", func() bool { return d.ready(1)() && d.worker("plc-7").Connected })
	if after := v.pids(); after[string(i.ID)] != before[string(i.ID)] || d.only().Restarts != 1 {
		t.Errorf("the process was touched: %v, then %v; %d restarts", before, after, d.only().Restarts)
	}

	t.Log("its cluster goes and comes back")
	addr := d.Cluster.MQTTAddr().String()
	d.stopCluster()
	if after := v.pids(); after[string(i.ID)] != before[string(i.ID)] {
		t.Errorf("the process was touched: %v, then %v", before, after)
	}
	d.startCluster("", addr)
	d.await("the device is back", func() bool { w := d.worker("plc-7"); return w != nil && w.Connected && d.ready(1)() })

	t.Log("scale")
	d.do(apps.Scale{Service: i.Service, Replicas: 3})
	d.await("three run", d.ready(3))
	d.do(apps.Scale{Service: i.Service, Replicas: 1})
	d.await("one runs", d.ready(1))
	d.await("the others have ended", func() bool { return len(v.pids()) == 1 })

	t.Log("delete")
	d.do(apps.Delete{Key: i.Service.App})
	d.await("nothing is left", d.ready(0))
	d.await("nothing runs", func() bool { return len(v.pids()) == 0 })
	left, err := os.ReadDir(filepath.Join(v.dir, "instances"))
	if err != nil || len(left) > 0 {
		t.Errorf("left on the device: %v, %v", left, err)
	}
}

// TestExternalAgentLimits: a service that asks for more than the agent does is not placed there, and explain says what; for logs there is
// a word instead of an answer.
func TestExternalAgentLimits(t *testing.T) {
	d := newDevices(t, 0)
	d.join("plc-7")
	d.await("the device is a worker", func() bool { w := d.worker("plc-7"); return w != nil && w.Facts != nil })
	probed := process("pump", "/bin/sleep", "1000")
	probed.Probes.Liveness = &spec.Probe{Exec: &spec.ExecProbe{Command: []string{"/bin/true"}}}
	d.do(app("plant", probed))
	d.await("the reasons are known", func() bool {
		return slices.ContainsFunc(d.only().Why, func(r wire.Reason) bool { return r.What == "ability" })
	})
	d.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "plant"}})
	d.await("nothing is left", d.ready(0))

	d.do(app("plant", process("pump", "/bin/sleep", "1000")))
	d.await("it runs", d.ready(1))
	rec := httptest.NewRecorder()
	d.Cluster.WriteMetrics(t.Context(), rec)
	for _, want := range []string{"skerry_mqtt_devices 1\n", "skerry_links 1\n", `skerry_mqtt_reasons_total{reason="answered"} 1`} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("the metrics lack %q:\n%s", want, rec.Body)
		}
	}
	rec = httptest.NewRecorder()
	d.Cluster.ServeInstance(rec, httptest.NewRequest(http.MethodGet, "/", nil), d.only().ID, "/logs")
	if rec.Code < 400 || !strings.Contains(rec.Body.String(), "carries no streams") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

// TestExternalAgentIsFrozen: an agent that stops to answer is noticed by its MQTT connection alone; when it goes on so does everything.
func TestExternalAgentIsFrozen(t *testing.T) {
	d := newDevices(t, 0)
	v := d.join("plc-7")
	d.await("the device is a worker", func() bool { w := d.worker("plc-7"); return w != nil && w.Facts != nil })
	d.do(app("plant", process("pump", "/bin/sleep", "1000")))
	d.await("it runs", d.ready(1))
	before := v.pids()
	_ = v.cmd.Process.Signal(syscall.SIGSTOP)
	d.await("it is lost", func() bool { return d.worker("plc-7").Lost })
	if w := d.worker("plc-7"); w.CutOff || !strings.Contains(w.Verdict, "nobody can be asked about it") {
		t.Errorf("%+v", w)
	}
	_ = v.cmd.Process.Signal(syscall.SIGCONT)
	d.await("it is back", func() bool { w := d.worker("plc-7"); return !w.Lost && w.Connected && d.ready(1)() })
	if after := v.pids(); len(after) != 1 || !maps.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestExternalAgentIsCutOff: what must not run for long without the cluster's word is stopped by the agent, also by one that was started
// anew, and runs again when the cluster says so.
func TestExternalAgentIsCutOff(t *testing.T) {
	d := newDevices(t, 0)
	v := d.join("plc-7")
	d.await("the device is a worker", func() bool { w := d.worker("plc-7"); return w != nil && w.Facts != nil })
	pump := process("pump", "/bin/sleep", "1000")
	pump.OnDisconnect = spec.StopAfter(2 * time.Second)
	valve := process("valve", "/bin/sleep", "1000")
	d.do(app("plant", pump, valve))
	d.await("both run", d.ready(2))
	only := func(name string) bool {
		p := v.pids()
		return len(p) == 1 && strings.HasPrefix(slices.Collect(maps.Keys(p))[0], name)
	}
	addr := d.Cluster.MQTTAddr().String()
	d.stopCluster()
	d.await("the pump was stopped and the valve was not", func() bool { return only("valve") })
	v.kill(syscall.SIGKILL)
	tries := func() int {
		text, _ := os.ReadFile(v.dir + ".log")
		return strings.Count(string(text), "cannot connect")
	}
	before := tries()
	v.start()
	d.await("the new agent has tried to connect", func() bool { return tries() > before+1 })
	if !only("valve") {
		t.Errorf("%v", v.pids())
	}
	d.startCluster("", addr)
	d.await("both run again", func() bool { return len(v.pids()) == 2 && d.ready(2)() })
}

// TestExternalAgentRenews: certificates are renewed within the session, and an expired one after it.
func TestExternalAgentRenews(t *testing.T) {
	d := newDevices(t, 3*time.Second)
	v := d.join("plc-7")
	enrolled := func() auth.Enrolled {
		for _, e := range d.Cluster.Authority().List() {
			if e.Name == "plc-7" {
				return e
			}
		}
		return auth.Enrolled{}
	}
	d.await("it has renewed twice", func() bool { return enrolled().Counter >= 3 })
	text, err := os.ReadFile(v.dir + ".log")
	if err != nil || strings.Count(string(text), "connected to") != 1 {
		t.Errorf("it was connected more than once: %v", err)
	}
	v.kill(syscall.SIGKILL)
	d.await("the certificate has expired", func() bool { return time.Now().After(enrolled().Expires) })
	v.start()
	d.await("it has renewed, and is back", func() bool { return enrolled().Expires.After(time.Now()) && d.worker("plc-7").Connected })
}

// TestExternalAgentIsKilled kills the agent and stops the cluster at random moments while a service is scaled and changed. When that is
// over there runs what was asked for last, each instance once, and what was left alone runs as the process that it was.
func TestExternalAgentIsKilled(t *testing.T) {
	d := newDevices(t, 0)
	v := d.join("plc-7")
	d.await("the device is a worker", func() bool { w := d.worker("plc-7"); return w != nil && w.Facts != nil })
	d.do(app("still", process("still", "/bin/sleep", "100000")))
	d.do(app("plant", process("pump", "/bin/sleep", "1")))
	d.await("both run", d.ready(2))
	still := ""
	for id := range v.pids() {
		if strings.HasPrefix(id, "still") {
			still = id
		}
	}
	before := v.pids()[still]
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Log("seed", seed)
	pump := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "plant"}, Service: "pump"}
	addr, alive := d.Cluster.MQTTAddr().String(), true
	for range 40 {
		switch rng.IntN(5) {
		case 0:
			d.do(apps.Scale{Service: pump, Replicas: rng.IntN(4)})
		case 1:
			d.do(app("plant", process("pump", "/bin/sleep", fmt.Sprint(1+rng.IntN(3)))))
		case 2, 3:
			if alive {
				v.kill(syscall.SIGKILL)
			} else {
				v.start()
			}
			alive = !alive
		case 4:
			d.stopCluster()
			d.startCluster("", addr)
		}
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	if !alive {
		v.start()
	}
	d.do(app("plant", process("pump", "/bin/sleep", "99999")))
	d.do(apps.Scale{Service: pump, Replicas: 2})
	d.await("what was asked for last runs", func() bool {
		if !d.ready(3)() {
			return false
		}
		list, _ := d.Root.Instances(context.Background())
		pids := v.pids()
		for _, i := range list {
			cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[string(i.ID)]))
			if want := map[string]string{"still": "100000", "pump": "99999"}[i.Service.Service]; !strings.Contains(string(cmdline),
				"\x00"+want+"\x00") {
				return false
			}
		}
		return len(pids) == 3
	})
	if after := v.pids()[still]; after != before {
		t.Errorf("the process that nobody touched was %d and is %d", before, after)
	}
	running := 0
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		if cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil &&
			strings.HasPrefix(string(cmdline), "/bin/sleep\x00") {
			if cwd, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")); strings.Contains(string(cwd), "SKERRY_WORKER=plc-7") {
				running++
			}
		}
	}
	if running != 3 {
		t.Errorf("%d processes run, 3 are wanted", running)
	}
}
