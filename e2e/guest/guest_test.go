//go:build linux && amd64

package guest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

// suites are the tests of what speaks to control groups: on most hosts where they run those are of version 1.
var suites = []string{"runtime/internal/cgroup", "runtime/native", "runtime/oci", "plugin"}

// installed puts Skerry into a directory as `make install` lays it out, with what else guests are given.
func installed(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("make", "-s", "install", "VERSION=guest-1", "BIN="+t.TempDir(), "DESTDIR="+filepath.Join(dir, "stage"))
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata/payload")); err != nil {
		t.Fatal(err)
	}
}

// payload is what a machine is given: Skerry, a later version, a program to run, and suites, as far as its steps need them.
func payload(t *testing.T, contained bool) string {
	t.Helper()
	dir := t.TempDir()
	installed(t, dir)
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "COMPRESSION=none", "NOTICES=LICENSE")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	run("go", "build", "-trimpath", "-o", filepath.Join(dir, "workload"), "./runtime/runtimetest/workload")
	first, second := filepath.Join(dir, "stage/usr/local/bin/skerry"), filepath.Join(dir, "skerry-2")
	run("scripts/deb", first, "amd64", "v1", dir)
	if contained || testenv.Systems() {
		testenv.Reversioned(t, second, first, "guest-1", "guest-2")
		run("scripts/deb", second, "amd64", "v2", dir)
	}
	if err := os.RemoveAll(filepath.Join(dir, "stage")); err != nil {
		t.Fatal(err)
	}
	if contained || !testenv.Systems() { // the rest is for the drivers' suites
		return dir
	}
	built := filepath.Join(dir, "built")
	if err := os.Mkdir(built, 0o755); err != nil {
		t.Fatal(err)
	}
	run("go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, "./runtime/runtimetest/workload", "./runtime/native/testdata/shim")
	for _, pkg := range suites {
		run("go", "test", "-c", "-ldflags=-s -w", "-o", filepath.Join(built, path.Base(pkg)+".test"), "./"+pkg)
	}
	return dir
}

// TestSystemd boots a guest, whose kernel is its own, and examines it step by step.
func TestSystemd(t *testing.T) {
	testenv.Long(t, "TestContainer; for the clock, TestCertificatesFollowTheClock and TestMadeUnderAClockAhead of auth")
	began := time.Now()
	g := &guest{machine: boot(t, plain, image(t), payload(t, false))}
	t.Logf("the guest was up after %s", time.Since(began).Round(time.Second))
	g.examine(t)
}

// TestContainer is TestSystemd in a container of this host, in some seconds. A host that allows no such container boots the guest for
// the steps that do not take minutes there.
func TestContainer(t *testing.T) {
	disk, began := image(t), time.Now()
	m, unable := contain(t, disk, payload(t, true))
	switch {
	case unable == nil:
	case testenv.Systems():
		t.Skip(unable) // TestSystemd has it all
	default:
		t.Logf("an emulated guest takes its place: %v", unable)
		hw := plain
		hw.cpus = "1" // a tenth less of the host's processor; no step that is left needs two
		m = boot(t, hw, disk, payload(t, false))
	}
	t.Logf("it was up after %s", time.Since(began).Round(time.Millisecond))
	g := &guest{machine: m}
	g.examine(t)
}

// examine takes the steps that a machine allows, each of which needs what the one before made.
func (g *guest) examine(t *testing.T) {
	for _, step := range []struct {
		name string
		run  func(*testing.T)
		long bool // takes minutes under emulation, and is left to make test-systems there
		own  bool // needs a kernel of its own, or control groups of version 2
	}{
		{"machine", g.sanity, false, false},
		{"units", g.units, false, false},
		{"drivers", g.drivers, true, true},
		{"apply", g.apply, false, false},
		{"enforced", g.enforced, false, false},
		{"manager", g.managed, false, false},
		{"outlive", g.outlive, false, false},
		{"clock", g.clock, false, true},
		{"reboot", g.reboot, true, false},
		{"stop all", g.stopAll, true, false},
		{"upgrade", g.upgrade, true, false},
		{"gone", g.gone, false, false},
		{"by hand", g.byHand, true, false},
		{"up as a service", g.upAsService, true, false},
		{"removed", g.removed, false, false},
	} {
		if step.own && g.contained || step.long && !g.patient() {
			continue
		}
		if !t.Run(step.name, step.run) {
			if g.dead == nil {
				g.run(t, "systemctl list-jobs --no-pager; systemctl status --no-pager skerry-worker | head -5; "+
					"journalctl -b --no-pager -n 60 -u 'skerry*' -u up | tail -c 2500")
			}
			return
		}
	}
}

// guest is a machine on which Skerry is installed.
type guest struct {
	*machine
	tree    string          // where groups of the memory controller are
	manager string          // where groups are by which systemd tells services apart
	running map[string]task // by service
}

// patient reports whether there is time for steps that are long under emulation.
func (g *guest) patient() bool { return g.contained || testenv.Systems() }

// sanity looks for version 2 of control groups, which a container has only if its host does.
func (g *guest) sanity(t *testing.T) {
	g.tree, g.manager = groupsRoot, groupsRoot
	if fs := g.must(t, "stat -fc %T "+groupsRoot); fs != "cgroup2fs" {
		if !g.contained {
			t.Fatalf("%s is a %s, want cgroup2fs", groupsRoot, fs)
		}
		g.tree = groupsRoot + "/memory"
		g.manager = g.must(t, "cd "+groupsRoot+" && ls -d $PWD/unified 2>/dev/null || ls -d $PWD/systemd")
	}
	out := g.must(t, "uname -r && systemctl is-system-running --wait || systemctl --failed --no-legend")
	if !strings.HasSuffix(out, "\nrunning") {
		t.Errorf("state of the system: %q, want running", out)
	}
}

// units installs the package and starts it role by role.
func (g *guest) units(t *testing.T) {
	g.must(t, g.mountPayload()+"dpkg --install /payload/skerry_1_amd64.deb && ! pgrep -x skerry")
	if out := g.must(t, "systemd-analyze verify /usr/lib/systemd/system/skerry* 2>&1"); out != "" {
		t.Errorf("systemd finds fault with the units:\n%s", out)
	}
	g.must(t, "cp -r /payload/etc/. /etc/ && cp /payload/workload /usr/local/bin/ && systemctl enable --now skerry-root")
	g.must(t, `token=$(skerry token create --role cluster --data /var/lib/skerry/root) &&
		echo "SKERRY_JOIN=$token" >>/etc/skerry/cluster.env && systemctl enable --now skerry-cluster`)
	g.must(t, `token=$(skerry token create --role worker --data /var/lib/skerry/cluster) &&
		echo "SKERRY_JOIN=$token" >>/etc/skerry/worker.env && systemctl enable --now skerry-worker`)
	g.connected(t)
	status := g.must(t, "skerry worker status")
	for _, runtime := range []string{"oci", "native"} {
		if !regexp.MustCompile(`(?m)^Runtime ` + runtime + `: +yes$`).MatchString(status) {
			t.Errorf("the runtime %s does not work here:\n%s", runtime, status)
		}
	}
	if !regexp.MustCompile(`(?m)^Overlay: +ebpf, number \d+, UDP port \d+, `).MatchString(status) {
		t.Errorf("the worker takes no part in the overlay:\n%s\n%s", status, g.run(t, "journalctl -u skerry-worker | tail -20").out)
	}
	if !g.contained && !regexp.MustCompile(`(?m)^WireGuard: +kernel, UDP port \d+$`).MatchString(status) {
		t.Errorf("the worker does not use the kernel's WireGuard:\n%s", status)
	}
	if r := g.run(t, "skerry doctor --machine"); r.status != 0 {
		t.Errorf("the doctor finds fault with a machine that works:\n%s", r.out)
	}
	g.must(t, "skerry login --trust -u admin --password-file /var/lib/skerry/root/admin-password 127.0.0.1")
	g.must(t, "skerry image build /payload/workload -t guest/workload:1 --push")
}

// connected waits for the worker's link to its cluster.
func (g *guest) connected(t *testing.T) {
	t.Helper()
	g.await(t, "skerry worker status | grep '^Parent: *connected'")
}

// drivers runs the tests of the runtimes.
func (g *guest) drivers(t *testing.T) {
	for _, pkg := range suites {
		// These need the source tree.
		r := g.patiently(t, patience, "cd /root && PATH=/payload/bin:$PATH /payload/built/"+path.Base(pkg)+
			".test -test.v -test.timeout 2h -test.skip '^Test(Examples|Manual)$'")
		t.Logf("%s: %d pass, %d skip", pkg, strings.Count(r.out, "--- PASS"), strings.Count(r.out, "--- SKIP"))
		if r.status != 0 {
			t.Errorf("%s fails under version 2: %s\n%s%s", pkg, strings.Join(failures(r.out), " | "), r.out, r.err)
		}
	}
}

// failures gives, of the output of a test binary, what the tests said that failed.
func failures(out string) (list []string) {
	said, test := map[string][]string{}, ""
	for l := range strings.Lines(out) {
		l = strings.TrimSpace(l)
		if _, name, ok := strings.Cut(l, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			list = append(list, name+": "+strings.Join(said[name], "; "))
			test = ""
		} else if f := strings.Fields(l); len(f) == 3 && f[0] == "===" {
			test = f[2]
		} else if test != "" && l != "" {
			said[test] = append(said[test], l)
		}
	}
	return list
}

// apply runs an application in both runtimes, and looks where its processes are and what limits them.
func (g *guest) apply(t *testing.T) {
	g.must(t, "skerry apply -f /payload/run.yaml")
	g.running = g.tasks(t, "box", "bare")
	for _, k := range g.running {
		g.limitsOf(t, k)
	}
	// The group in which they are is held by the service manager, and delegated.
	if out := g.must(t, "systemctl show -P ControlGroup -P Delegate -P SubState skerry-workloads"); out != "/skerry.slice/skerry-workloads.service\nyes\nrunning" {
		t.Errorf("group, delegation and state of the workloads' unit: %q", out)
	}
	// Neither workloads nor their supervisors are among the agent's processes.
	agent := g.must(t, "systemctl show -P MainPID skerry-worker")
	procs := g.must(t, "cd "+g.manager+"$(systemctl show -P ControlGroup skerry-worker) && find -name cgroup.procs | xargs cat")
	if procs != agent {
		t.Errorf("processes of the worker's service are %q, its own is %s", procs, agent)
	}
	workloads := g.member(path.Base(g.manager), "skerry.slice/skerry-workloads.service/")
	if n := g.must(t, "for p in $(pgrep conmon); do cat /proc/$p/cgroup; done | grep -c '"+workloads+"'"); n != "2" {
		t.Errorf("%s supervisors are in the slice, not 2", n)
	}
	// An exec is bound by the limits, too.
	if out := g.must(t, "skerry exec run/bare -- cat /proc/self/cgroup"); !strings.Contains(out, g.member("memory", g.running["bare"].group)) {
		t.Errorf("exec in a process runs in %q", out)
	}
	out := g.must(t, "skerry exec run/box -- /workload read /proc/self/cgroup")
	if !strings.Contains(out+"\n", g.member("memory", "")+"\n") {
		t.Errorf("exec in a container sees %q", out)
	}
	g.must(t, "skerry exec run/box -- /workload write /data/kept 'before the power went'")
	// The agent is spared by the kernel when memory runs short; what it runs is not.
	want := "-500\n0\n0"
	if g.contained && !mayLower() {
		want = "0\n0\n0"
	}
	if out := g.must(t, "cat /proc/$(systemctl show -P MainPID skerry-worker)/oom_score_adj; "+
		"for p in $(pgrep workload); do cat /proc/$p/oom_score_adj; done"); out != want {
		t.Errorf("oom_score_adj of the agent and of what it runs: %q, want %q", out, want)
	}
}

// enforced meets each limit.
func (g *guest) enforced(t *testing.T) {
	g.must(t, "skerry apply -f /payload/limits.yaml --no-wait; skerry apply -f /payload/busy.yaml; skerry wait limits --for completed --timeout 2m; true")
	seen := 0
	for _, i := range g.instances(t) {
		service := i.Service.Service
		switch {
		case i.Service.App.Name != "limits":
			continue
		case i.Exit == nil:
			t.Errorf("%s has not ended", i.ID)
			continue
		case strings.HasPrefix(service, "hog-"):
			if !i.Exit.OOMKilled {
				t.Errorf("%s used more memory than it may, and was not reported so: %+v, %s", i.ID, *i.Exit, i.Reason)
			}
		case strings.HasPrefix(service, "fork-"):
			if i.Exit.Code >= 24 || i.Exit.OOMKilled {
				t.Errorf("%s could make %d processes of 24: %s", i.ID, i.Exit.Code, i.Reason)
			}
		}
		seen++
	}
	if seen != 4 {
		t.Errorf("%d instances ended, not 4", seen)
	}
	for _, k := range g.tasks(t, "spin-box", "spin-bare") {
		g.await(t, g.throttled(k))
	}
	g.must(t, "skerry delete app limits busy --wait; skerry get events | tail -20")
}

// managed has the service manager go over its groups again, as it does with every unit that comes or goes.
func (g *guest) managed(t *testing.T) {
	g.must(t, "systemctl daemon-reload && systemctl set-property --runtime skerry.slice CPUWeight=200 && systemctl restart dbus && systemd-run --slice=skerry.slice true && systemctl daemon-reexec")
	for _, k := range g.running {
		g.limitsOf(t, k)
	}
}

// outlive ends the agent in every way, and finds what ran running as before.
func (g *guest) outlive(t *testing.T) {
	ends := []string{
		crash("skerry-worker", ""), // with all that is in its unit
		"systemctl restart skerry-worker",
		"systemctl stop skerry-worker && sleep 1 && systemctl start skerry-worker",
	}
	if !g.patient() {
		ends = ends[:1]
	}
	for _, end := range ends {
		before := g.must(t, "systemctl show -P MainPID skerry-worker")
		g.must(t, end)
		if after := g.must(t, "systemctl show -P MainPID skerry-worker"); after == before {
			t.Fatalf("%s: the agent is the same", end)
		}
		g.connected(t)
		g.await(t, "skerry worker status | grep '^Instances: *2$'")
		g.must(t, "skerry wait run --for ready")
		now := g.tasks(t, "box", "bare")
		if !maps.Equal(now, g.running) {
			t.Errorf("%s: ran %v, now %v", end, g.running, now)
		}
		for _, k := range now {
			g.limitsOf(t, k)
		}
		// Taken up means that it can be reached again.
		g.must(t, "skerry exec run/box -- /workload print again && skerry logs run/bare | grep ready")
	}
}

// clock sets the clock under all roles, by more than certificates, logins and leases last, and back. What runs is not touched, its parts stay
// in touch, and who logs in anew finds an API with a certificate of now.
func (g *guest) clock(t *testing.T) {
	before := g.must(t, "systemctl show -P MainPID skerry-root skerry-cluster skerry-worker")
	for _, by := range []string{"+ 3 years", "- 3 years"} {
		g.must(t, "date -s \"$(date -Is -d \"$(date -Is) "+by+"\")\"")
		g.await(t, "skerry login --trust -u admin --password-file /var/lib/skerry/root/admin-password 127.0.0.1 2>&1")
		g.await(t, "skerry wait run --for ready --timeout 10s")
		g.connected(t)
		if now := g.tasks(t, "box", "bare"); !maps.Equal(now, g.running) {
			t.Errorf("%s: ran %v, now %v", by, g.running, now)
		}
		g.await(t, "skerry exec run/box -- /workload print again")
	}
	if after := g.must(t, "systemctl show -P MainPID skerry-root skerry-cluster skerry-worker"); after != before {
		t.Errorf("roles were started anew: %s, %s", before, after)
	}
}

// reboot shuts the machine down while workloads run, and finds all of it back.
func (g *guest) reboot(t *testing.T) {
	began := time.Now()
	g.restart(t)
	t.Logf("the guest came up again after %s", time.Since(began).Round(time.Second))
	g.must(t, g.mountPayload()+"ls /payload")
	g.connected(t)
	g.await(t, "skerry worker status | grep '^Instances: *2$'")
	g.must(t, "skerry wait run --for ready")
	before := g.running
	g.running = g.tasks(t, "box", "bare")
	for service, k := range g.running {
		if b := before[service]; k.instance != b.instance || k.restarts != b.restarts+1 {
			t.Errorf("before the reboot there was %v, after it %v", b, k)
		}
		g.limitsOf(t, k)
	}
	// Its volume is mounted again, with what was in it, and is as small as before.
	if out := g.must(t, "skerry exec run/box -- /workload read /data/kept"); out != "before the power went" {
		t.Errorf("the volume holds %q", out)
	}
	if r := g.run(t, "skerry exec run/box -- /workload fill /data/more 32"); r.status == 0 || !strings.Contains(r.out+r.err, "no space left") {
		t.Errorf("32 MiB went into a volume of 16: status %d, %s%s", r.status, r.out, r.err)
	}
}

// stopAll ends all workloads through the service manager, as an operator would before work on the machine, and then kills
// whatever is in their unit.
func (g *guest) stopAll(t *testing.T) {
	g.must(t, "systemctl stop skerry-workloads && ! pgrep workload && ! pgrep conmon && ! systemctl -q is-active skerry-worker")
	g.must(t, "systemctl start skerry-worker")
	g.back(t)
	if !g.unified() {
		return // what follows is about version 2
	}
	// As long as the agent runs it may bring something back, in a group whose controllers are handed down.
	g.must(t, `cd /sys/fs/cgroup/skerry.slice && { while [ "$(systemctl is-active skerry-worker)" = active ]; do mkdir -p skerry-workloads.service/late/er &&
		echo +memory >skerry-workloads.service/cgroup.subtree_control; sleep 1000 & echo $! >skerry-workloads.service/late/er/cgroup.procs; done >/dev/null 2>&1 & } &&
		sleep 0.5 && systemctl kill -s KILL skerry-workloads`)
	g.await(t, "systemctl -q is-active skerry-workloads && systemctl -q is-active skerry-worker && ! pgrep -xf 'sleep 1000'")
	g.back(t)
	for _, k := range g.running {
		g.limitsOf(t, k)
	}
}

// upgrade has the unit's agent go over to another program, which is its program after a restart, too; one that ends is given up.
func (g *guest) upgrade(t *testing.T) {
	g.must(t, "skerry worker upgrade /payload/skerry-2 --steady 2s")
	g.must(t, `printf '#!/bin/sh\n[ "$1" = version ] && exec echo "{\"client\": \"bad\"}"; exit 7\n' >/root/bad && chmod +x /root/bad && out=$(! skerry worker upgrade /root/bad --steady 2s 2>&1) && echo "$out" | grep 'exit status 7'`)
	for range 2 {
		g.connected(t)
		g.must(t, "skerry worker status | grep '^Version: *guest-2' && systemctl -q is-active skerry-worker && test $(systemctl show -P MainPID skerry-worker) = $(skerry worker status -o json | sed -n 's/^  \"pid\": \\([0-9]*\\),/\\1/p')")
		if now := g.tasks(t, "box", "bare"); !maps.Equal(now, g.running) {
			t.Errorf("before the upgrade there was %v, after it %v", g.running, now)
		}
		g.must(t, "systemctl restart skerry-worker")
	}
	g.connected(t)

	// A package of a later version restarts all roles and nothing that they run.
	before := g.must(t, "systemctl show -P MainPID skerry-root skerry-cluster skerry-worker")
	g.must(t, "dpkg --install /payload/skerry_2_amd64.deb && systemctl is-active skerry-root skerry-cluster skerry-worker")
	if now := g.must(t, "systemctl show -P MainPID skerry-root skerry-cluster skerry-worker"); now == before {
		t.Errorf("the same processes as before the package: %s", now)
	}
	g.connected(t)
	if now := g.tasks(t, "box", "bare"); !maps.Equal(now, g.running) {
		t.Errorf("before the package's upgrade there was %v, after it %v", g.running, now)
	}
}

// back waits until what had ended runs again.
func (g *guest) back(t *testing.T) {
	t.Helper()
	g.connected(t)
	for _, k := range g.running {
		g.await(t, "! test -e "+g.tree+"/"+k.group+" && cat "+g.tree+"/"+path.Dir(k.group)+"/"+k.instance+".*/cgroup.procs | grep .")
	}
	g.await(t, "skerry get instances --app run | grep -c 'Running  *Running  *yes' | grep -x 2")
	g.running = g.tasks(t, "box", "bare")
}

// gone deletes what outlived the agent.
func (g *guest) gone(t *testing.T) {
	g.must(t, "skerry delete app run --wait")
	for _, k := range g.running {
		g.must(t, fmt.Sprintf("! test -e /proc/%s && ! test -e %s/%s", k.pid, g.tree, k.group))
	}
	g.await(t, "! pgrep conmon")
	if out := g.must(t, "systemctl --failed --no-legend; journalctl -b -p warning --no-pager _SYSTEMD_UNIT=init.scope + _SYSTEMD_UNIT=skerry-worker.service"); out != "" {
		t.Logf("warnings:\n%s", out)
	}
}

// byHand runs all roles in one process, as a service that nobody packaged: workloads are in groups of the default name, which
// are no unit's.
func (g *guest) byHand(t *testing.T) {
	g.must(t, "systemctl disable --now skerry-worker skerry-cluster skerry-root skerry-workloads && rm -r $HOME/.config/skerry")
	start := "systemd-run --unit up --service-type=notify -p TimeoutStartSec=5min skerry up --data /var/lib/up --name hand"
	g.must(t, start)
	g.must(t, "skerry login --trust -u admin --password-file /var/lib/up/root/admin-password 127.0.0.1")
	g.must(t, "skerry image build /payload/workload -t guest/workload:1 --push && skerry apply -f /payload/run.yaml")
	before := g.tasks(t, "box", "bare")
	g.must(t, "systemctl stop up && systemctl daemon-reload && "+start+" && skerry wait run --for ready")
	if now := g.tasks(t, "box", "bare"); !maps.Equal(now, before) {
		t.Errorf("ran %v, now %v", before, now)
	}
	for _, k := range before {
		g.limitsOf(t, k)
	}
	g.must(t, "systemctl stop up && skerry worker cleanup --data /var/lib/up/worker --yes")
	g.must(t, "! pgrep workload && ! test -e "+g.tree+"/skerry")
}

// upAsService has systemd run all roles in one process, with flags that change; what runs goes on meanwhile.
func (g *guest) upAsService(t *testing.T) {
	up := "skerry up --service --data /var/lib/service --name hand"
	g.must(t, "systemctl enable skerry-root && out=$(! "+up+" 2>&1) && echo \"$out\" | grep 'skerry-root.service is enabled'")
	g.must(t, "systemctl disable --now skerry-worker skerry-cluster skerry-root skerry-workloads; rm -rf $HOME/.config/skerry && "+up)
	g.must(t, "skerry login --context local --user admin --password-file /var/lib/service/root/admin-password")
	g.must(t, "skerry image build /payload/workload -t guest/workload:1 --push && skerry apply -f /payload/run.yaml")
	before := g.tasks(t, "box", "bare")
	for _, k := range before {
		g.limitsOf(t, k)
		if !strings.HasPrefix(k.group, "skerry.slice/skerry-workloads.service/") {
			t.Errorf("%s is in group %s, not in that of the workloads' unit", k.instance, k.group)
		}
	}
	pid := g.must(t, "systemctl show -P MainPID skerry")
	if out := g.must(t, "! skerry up --data /var/lib/service 2>&1"); !strings.Contains(out, "systemctl stop skerry") {
		t.Errorf("a second one is not told of the service: %s", out)
	}
	g.must(t, up+" --label colour=\"dark red\"")
	if now := g.must(t, "systemctl show -P MainPID skerry"); now == pid {
		t.Error("other flags started nothing anew")
	}
	g.await(t, "skerry --context local wait run --for ready")
	if now := g.tasks(t, "box", "bare"); !maps.Equal(now, before) {
		t.Errorf("ran %v, now %v", before, now)
	}
	g.must(t, "tr '\\0' '\\n' </proc/$(systemctl show -P MainPID skerry)/environ | grep -x 'SKERRY_LABEL=colour=dark red'")
	g.must(t, "systemctl disable --now skerry skerry-workloads && ! pgrep workload && ! pgrep conmon")
	g.must(t, "skerry worker cleanup --data /var/lib/service/worker --yes")
}

// removed takes the package away, with everything that runs and but for the data.
func (g *guest) removed(t *testing.T) {
	g.must(t, "systemctl enable --now skerry-root skerry-cluster skerry-worker")
	g.connected(t)
	g.must(t, "rm -rf $HOME/.config/skerry && skerry login --trust -u admin --password-file /var/lib/skerry/root/admin-password 127.0.0.1")
	g.must(t, "skerry apply -f /payload/run.yaml && pgrep workload && pgrep conmon && grep /var/lib/skerry/ /proc/mounts")
	g.must(t, "dpkg --remove skerry")
	g.must(t, "! pgrep -x skerry && ! pgrep workload && ! pgrep conmon && ! grep /var/lib/skerry/ /proc/mounts")
	g.must(t, "! test -e /usr/bin/skerry && ! test -e "+g.tree+"/skerry.slice/skerry-workloads.service")
	if out := g.must(t, "systemctl list-units --all --plain --no-legend 'skerry-*.service'; ip netns list"); out != "" {
		t.Errorf("the package left this behind: %s", out)
	}
	g.must(t, "dpkg --purge skerry && ! test -e /etc/skerry && test -e /var/lib/skerry/worker && test -e /var/lib/skerry/root")
}

func TestFailuresOfABinary(t *testing.T) {
	got := failures("=== RUN   TestA\n=== RUN   TestA/x\n    a_test.go:1: wrong\n        very\n=== RUN   TestA/y\n    a_test.go:2: right\n--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/x (0.1s)\n    --- PASS: TestA/y (0.0s)\nFAIL\n")
	if want := []string{"TestA: ", "TestA/x: a_test.go:1: wrong; very"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
