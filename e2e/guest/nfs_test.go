//go:build linux && amd64

package guest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// TestNFS has instances share what an NFS server exports, which is in the same guest: this machine's kernel need not have NFS.
func TestNFS(t *testing.T) {
	testenv.Long(t, "internal/nfsmount, worker TestNFSVolume")
	dir := t.TempDir()
	installed(t, dir)
	for _, args := range [][]string{
		{"build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "workload"), "./runtime/runtimetest/workload"},
		{"test", "-c", "-ldflags=-s -w", "-o", filepath.Join(dir, "nfsmount.test"), "./internal/nfsmount"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join("..", "..")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	g := &nfsGuest{boot(t, plain, image(t, "nfs-kernel-server"), dir)}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"server", g.server}, {"mounts", g.suite}, {"roles", g.roles}, {"not allowed", g.notAllowed}, {"shared", g.shared},
		{"part", g.part}, {"agent restarts", g.restarted}, {"refused", g.refused},
		{"server goes away", g.away}, {"cleanup", g.cleanup}, {"no NFS", g.none},
	} {
		if !t.Run(step.name, step.run) {
			if g.dead == nil {
				g.run(t, "grep nfs /proc/mounts; skerry get instances; skerry get events | tail -15; "+
					"journalctl -b --no-pager -u up -n 25 | cut -c1-300; dmesg | tail -5")
			}
			return
		}
	}
}

// nfsGuest is a machine with an NFS server and all roles of Skerry.
type nfsGuest struct{ *machine }

// begin runs all roles; what is already there is taken up.
const begin = "systemd-run -q --unit up --service-type=notify -p TimeoutStartSec=5min -p KillMode=process " +
	"skerry up --data /var/lib/up --name hand"

const allowed = begin + " --nfs 127.0.0.1:/srv/media --nfs 127.0.0.1:/srv/none"

// apply applies an application of one service, which has what the server exports at a path.
func (g *nfsGuest) apply(t *testing.T, name, nfs, flags string) {
	t.Helper()
	g.applyPart(t, name, nfs, "", flags)
}

// applyPart is apply with a part of what the server exports; "": all of it.
func (g *nfsGuest) applyPart(t *testing.T, name, nfs, part, flags string) {
	t.Helper()
	volume := ""
	if nfs != "" {
		volume = "volumes: [{name: v, nfs: {server: 127.0.0.1, " + nfs + "}}]\n    mounts: [{volume: v, path: /data, subPath: \"" + part + "\"}]"
	}
	g.must(t, fmt.Sprintf(`cat >/root/%[1]s.yaml <<'END'
apiVersion: skerry/v1
kind: Application
metadata: {name: %[1]s}
spec:
  services:
  - name: s
    image: guest/workload:1
    args: [sleep]
    resources: {cpu: 50m, memory: 32Mi}
    %[2]s
END
skerry apply -f /root/%[1]s.yaml %[3]s`, name, volume, flags))
}

// server is the server in reasons: it has the worker's own address, which its root is not told.
const server = "its address"

// said waits until something is given as the reason of an instance, or in an event.
func (g *nfsGuest) said(t *testing.T, text string) {
	t.Helper()
	g.await(t, "{ skerry get instances -o json; skerry get events; } | grep -F '"+text+"'")
}

// mounts waits until so many exports are mounted.
func (g *nfsGuest) mounts(t *testing.T, want int) {
	t.Helper()
	g.await(t, fmt.Sprintf("grep ' nfs4* ' /proc/mounts; test $(grep -c ' nfs4* ' /proc/mounts) = %d", want))
}

func (g *nfsGuest) server(t *testing.T) {
	g.must(t, "mkdir /payload && mount -o ro /dev/nvme1n1 /payload && cp -a /payload/stage/. / && systemctl daemon-reload")
	g.must(t, `mkdir -p /srv/media/deep /etc/nfs.conf.d && printf '[nfsd]\ngrace-time=10\nlease-time=10\n' >/etc/nfs.conf.d/test.conf &&
		echo '/srv/media *(rw,no_root_squash,insecure,no_subtree_check,fsid=1)' >/etc/exports &&
		systemctl restart nfs-server && exportfs -ra && exportfs -v`)
}

// suite is what the agent does, without the agent.
func (g *nfsGuest) suite(t *testing.T) {
	r := g.patiently(t, patience, "cd /root && /payload/nfsmount.test -test.v -exported /srv/media")
	t.Logf("%s%s", r.out, r.err)
	if r.status != 0 {
		t.Errorf("internal/nfsmount: %s", strings.Join(failures(r.out), " | "))
	}
	g.mounts(t, 0)
}

func (g *nfsGuest) roles(t *testing.T) {
	g.must(t, begin)
	g.must(t, "skerry login --trust -u admin --password-file /var/lib/up/root/admin-password 127.0.0.1")
	g.must(t, "skerry image build /payload/workload -t guest/workload:1 --push")
}

func (g *nfsGuest) notAllowed(t *testing.T) {
	g.apply(t, "early", "path: /srv/media", "--no-wait")
	g.await(t, "skerry explain early/s | grep 'mounts NFS servers for instances'")
	g.must(t, "skerry delete app early --wait && systemctl stop up && "+allowed)
	g.apply(t, "early", "path: /srv/other", "--no-wait")
	g.said(t, "this worker does not mount "+server+":/srv/other")
	g.must(t, "skerry delete app early --wait")
	g.mounts(t, 0)
}

func (g *nfsGuest) shared(t *testing.T) {
	g.apply(t, "a", "path: /srv/media", "")
	g.apply(t, "b", "path: /srv/media", "")
	g.must(t, "skerry exec a/s -- /workload write /data/said hello")
	if out := g.must(t, "skerry exec b/s -- /workload read /data/said; cat /srv/media/said"); out != "hellohello" {
		t.Errorf("read %q, expected hello of the other instance and of the server", out)
	}
	g.mounts(t, 1)
	if out := g.must(t, "grep ' nfs4 ' /proc/mounts"); !strings.Contains(out, "nosuid,nodev") || !strings.Contains(out, ",soft,") {
		t.Errorf("mounted %q, expected nosuid, nodev and soft", out)
	}
	g.apply(t, "reads", "path: /srv/media/deep, readOnly: true, version: \"4.1\", options: [hard, noatime]", "")
	g.mounts(t, 2)
	if r := g.run(t, "skerry exec reads/s -- /workload write /data/x y"); r.status == 0 {
		t.Errorf("wrote to a volume that is to be read: %s%s", r.out, r.err)
	}
	g.must(t, "skerry delete app reads --wait")
	g.mounts(t, 1)
}

// part mounts a directory of an export, beside the whole that others have, and follows no link out of it.
func (g *nfsGuest) part(t *testing.T) {
	g.must(t, "mkdir -p /srv/media/deep && printf inside >/srv/media/deep/said && ln -sfn /etc /srv/media/out")
	g.applyPart(t, "part", "path: /srv/media", "deep", "")
	g.mounts(t, 2)
	if out := g.must(t, "skerry exec part/s -- /workload read /data/said"); out != "inside" {
		t.Errorf("said in the part: got %q, want inside", out)
	}
	g.must(t, "skerry exec part/s -- /workload write /data/back again && grep again /srv/media/deep/back")
	g.applyPart(t, "led", "path: /srv/media", "out", "--no-wait")
	g.said(t, "out is, or goes through, a symbolic link that leads out of the volume")
	g.must(t, "skerry delete app part led --wait")
	g.mounts(t, 1)
}

// restarted counts who has a mount across the end of the agent.
func (g *nfsGuest) restarted(t *testing.T) {
	g.must(t, "systemctl kill -s KILL up; while systemctl -q is-active up; do sleep 0.2; done; systemctl reset-failed up; "+allowed)
	g.await(t, "skerry wait a b --for ready --timeout 10s")
	g.mounts(t, 1)
	g.must(t, "skerry delete app a --wait && skerry exec b/s -- /workload read /data/said")
	g.mounts(t, 1)
	g.must(t, "skerry delete app b --wait")
	g.mounts(t, 0)
	g.must(t, "cat /srv/media/said")
}

func (g *nfsGuest) refused(t *testing.T) {
	g.apply(t, "wrong", "path: /srv/none", "--no-wait")
	g.said(t, "mount "+server+":/srv/none: no such file or directory (the server has no such path)")
	g.must(t, "skerry delete app wrong --wait")
	g.mounts(t, 0)
}

// away has the server vanish under an instance that writes: it is there, and answers nothing.
func (g *nfsGuest) away(t *testing.T) {
	for _, options := range []string{"", ", options: [hard]"} {
		g.apply(t, "writer", "path: /srv/media"+options, "")
		g.must(t, "nft add table inet gone && nft 'add chain inet gone in { type filter hook input priority 0; }' && "+
			"nft add rule inet gone in tcp dport 2049 drop")
		g.must(t, "setsid skerry exec writer/s -- /workload fill /data/more 64 >/root/fill 2>&1 </dev/null & sleep 3; ! grep . /root/fill")
		// Neither the agent nor others are held up.
		g.must(t, "skerry worker status --data /var/lib/up/worker | grep '^Parent: *connected'")
		g.apply(t, "plain", "", "")
		g.apply(t, "second", "path: /srv/media"+options, "--no-wait")
		g.said(t, "the server of "+server+":/srv/media has not answered")
		g.must(t, "skerry delete app second --wait --timeout 2m")
		g.must(t, "skerry delete app writer plain --wait --timeout 4m")
		g.mounts(t, 0)
		g.must(t, "nft delete table inet gone; rm -f /srv/media/more")
	}
	g.apply(t, "later", "path: /srv/media", "")
	g.must(t, "skerry exec later/s -- /workload read /data/said")
}

// cleanup finds one instance with its mount, and leaves what is on the server alone.
func (g *nfsGuest) cleanup(t *testing.T) {
	g.mounts(t, 1)
	g.must(t, "systemctl stop up && skerry worker cleanup --data /var/lib/up/worker --yes --purge && test ! -e /var/lib/up/worker")
	g.mounts(t, 0)
	g.must(t, "cat /srv/media/said && rm -rf /var/lib/up ~/.config/skerry")
}

// none is a kernel without NFS.
func (g *nfsGuest) none(t *testing.T) {
	g.must(t, "systemctl stop nfs-server; cd /lib/modules/$(uname -r)/kernel/fs && mv nfs /root/modules && "+
		"depmod && for m in nfsv3 nfsv4 nfs; do rmmod $m 2>/dev/null; done; ! grep nfs4 /proc/filesystems")
	g.must(t, allowed)
	g.must(t, "skerry login --trust -u admin --password-file /var/lib/up/root/admin-password 127.0.0.1 && "+
		"skerry image build /payload/workload -t guest/workload:1 --push")
	g.apply(t, "early", "path: /srv/media", "--no-wait")
	g.said(t, "has no NFS")
}
