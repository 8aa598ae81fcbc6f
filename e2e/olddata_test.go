//go:build linux

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/olddata"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

var writeOldData = flag.String("olddata", "", "write the data directories of this program as a set of this name; `make olddata` does all that belongs to one")

// operator runs commands as the admin of one server.
type operator struct {
	t             *testing.T
	program, home string
	server, pin   string
}

func operatorOf(t *testing.T, program, server, dir string) *operator {
	t.Helper()
	o := &operator{t: t, program: program, home: t.TempDir(), server: server}
	login(t, server, dir).Close() // it answers
	pin, err := api.FetchPin(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	o.pin = pin
	o.run("login", server, "--user", "admin", "--ca-pin", pin, "--password-file", filepath.Join(dir, "admin-password"))
	return o
}

func (o *operator) try(stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(o.t.Context(), o.program, args...)
	cmd.Env = append(os.Environ(), "HOME="+o.home, "SKERRY_CONFIG="+filepath.Join(o.home, "contexts"), "SKERRY_IMAGES="+filepath.Join(o.home, "images"))
	cmd.Stdin = strings.NewReader(stdin)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("skerry %s: %w: %s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), err
}

func (o *operator) run(args ...string) string {
	o.t.Helper()
	out, err := o.try("", args...)
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

func (o *operator) apply(manifest string, args ...string) {
	o.t.Helper()
	if _, err := o.try(manifest, append([]string{"apply", "-f", "-", "--no-wait"}, args...)...); err != nil {
		o.t.Fatal(err)
	}
}

// until runs a command until it shows a text.
func (o *operator) until(text string, args ...string) {
	o.t.Helper()
	last := ""
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := o.try("", args...)
		if last = fmt.Sprint(out, err); err == nil && strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("skerry %s does not show %q: %s", strings.Join(args, " "), text, last)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// oldShop has what a manifest may hold, so that records of all its parts come about. Its program is one of the host.
const oldShop = `apiVersion: skerry/v1
kind: Application
metadata: {name: shop, labels: {team: harbour}}
spec:
  services:
  - name: web
    runtime: native
    command: [/bin/sleep, "100000"]
    args: ["%[1]d"]
    replicas: 2
    labels: {tier: front}
    env: {ROUND: "%[1]d"}
    ports: [{name: http, port: 8080}]
    links: [{service: db, maxLatency: 500ms}]
    secrets: [{name: db, path: /media}]
    config: [{path: /etc/hostname, content: "a = 1\n"}]
    volumes: [{name: tmp, empty: {size: 4Mi}}]
    mounts: [{volume: tmp, path: /mnt}]
    ingress: [{host: shop.example.org, port: http, tls: shop}]
    export: [{to: acme/portal, org: acme}]
    resources: {cpu: 0.05, memory: 32Mi, limits: {cpu: 0.5, memory: 64Mi}}
    placement: {policy: spread, tolerations: [{key: edge}], affinity: [{labels: {tier: back}, preferred: true}], rigidness: 0.4}
    update: {rollback: automatic, healthyTime: 1s, maxSurge: 1}
    restart: {policy: always}
    onDisconnect: run
  - name: db
    runtime: native
    command: [/bin/sleep, "100000"]
    labels: {tier: back}
    ports: [{name: sql, port: 5432}]
    volumes: [{name: data, local: {size: 4Mi, reclaim: keep}}]
    mounts: [{volume: data, path: /srv}]
    resources: {cpu: 0.05, memory: 32Mi, storage: 8Mi}
    onDisconnect: {stopAfter: 10m}
  - name: agent
    mode: perWorker
    runtime: native
    command: [/bin/sleep, "100000"]
    resources: {cpu: 0.05, memory: 16Mi}
  - name: scaled
    runtime: native
    command: [/bin/sleep, "100000"]
    scale: {min: 1, max: 3, target: {cpu: 0.9}}
    resources: {cpu: 0.05, memory: 16Mi}
  - name: nightly
    mode: cron
    runtime: native
    command: [/bin/true]
    cron: {schedule: "0 3 * * *"}
    resources: {cpu: 0.05, memory: 16Mi}
  - name: batch
    mode: job
    runtime: native
    command: [/bin/true]
    job: {completions: 2, ttl: 24h}
    resources: {cpu: 0.05, memory: 16Mi}
`

const oldPortal = `apiVersion: skerry/v1
kind: Application
metadata: {name: portal, namespace: acme}
spec:
  imports: [{from: default/shop, org: default}]
  services:
  - {name: front, runtime: native, command: [/bin/sleep, "100000"], resources: {cpu: 0.05, memory: 16Mi}, egress: {allow: [{cidr: 192.0.2.0/24, ports: [{port: 443}]}]}}
`

// oldStore leaves volumes behind.
const oldStore = `apiVersion: skerry/v1
kind: Application
metadata: {name: gone}
spec:
  services:
  - {name: db, runtime: native, command: [/bin/sleep, "100000"], volumes: [{name: data, local: {size: 4Mi}}], mounts: [{volume: data, path: /srv}],
     resources: {cpu: 0.05, memory: 16Mi, storage: 4Mi}}
`

// oldHuge finds no place.
const oldHuge = `apiVersion: skerry/v1
kind: Application
metadata: {name: %s}
spec:
  services:
  - {name: db, runtime: native, command: [/bin/sleep, "100000"], resources: {cpu: %s, memory: 16Mi}}
`

// oldViews are the commands whose output a set has, at the root (r) and at the site (c).
var oldViews = []string{
	"r org list", "r namespace list", "r user list", "r access-token list", "r token list", "r member list", "r secret ls", "r certificate get",
	"r get app shop", "r get app portal -n acme", "r get app huge", "r get volumes",
	"c org list", "c namespace list", "c user list", "c token list", "c member list", "c secret ls", "c get app local", "c get volumes",
}

// views runs them.
func views(r, c *operator) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, v := range oldViews {
		at, command, _ := strings.Cut(v, " ")
		o := r
		if at == "c" {
			o = c
		}
		out[v] = json.RawMessage(o.run(append(strings.Fields(command), "-o", "json")...))
	}
	return out
}

// certificate makes one of its own for a host name.
func certificate(t *testing.T, host, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(30, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// makeOldData runs three roles with one of everything, and packs what they leave.
func makeOldData(t *testing.T, name string) {
	p := newProcesses(t, "worker")
	root, cluster, worker := p.threeRoles()
	r := operatorOf(t, p.program, "https://127.0.0.1:7480", p.data("root"))
	c := operatorOf(t, p.program, "https://127.0.0.1:7481", p.data("cluster"))
	for _, o := range []*operator{r, c} {
		o.run("org", "quota", "default", "--cpu", "2000", "--memory", "4Gi", "--storage", "1Ti", "--instances", "100")
		o.run("org", "create", "acme", "--cpu", "2", "--memory", "1Gi", "--service-addresses", "50")
		o.run("namespace", "create", "acme", "--org", "acme")
		if _, err := o.try("correct horse battery staple", "user", "create", "alice", "--grant", "developer:acme", "--password-stdin"); err != nil {
			t.Fatal(err)
		}
		o.run("user", "disable", "alice")
		o.run("access-token", "create", "ci", "--scope", "apps:read", "--ttl", "90d")
		o.run("secret", "create", "db", "--from-literal", "password=one")
		o.run("secret", "rotate", "db", "--from-literal", "password=two")
		o.run("secret", "undo", "db")
	}
	r.run("token", "create", "--role", "cluster", "--name", "quay", "--ttl", "24h")
	c.run("token", "create", "--role", "worker", "--name", "w9", "--ttl", "24h")
	cert, key := certificate(t, "shop.example.org", p.dir)
	r.run("certificate", "put", "shop", "--cert", cert, "--key", key)

	// One who was a member for a moment.
	token := joinToken(t, r.server, p.data("root"), wire.TierCluster)
	gone := p.start(&role{name: "pier", args: []string{"cluster", "--name", "pier", "--data", p.data("pier"), "--root", "127.0.0.1:7443", "--join", token, "--link", "127.0.0.1:0", "--api", "127.0.0.1:0"}})
	r.until("pier", "member", "list")
	gone.kill()
	r.run("delete", "cluster", "pier")

	r.apply(fmt.Sprintf(oldShop, 1))
	r.apply(oldPortal)
	r.apply(oldStore)
	r.apply(fmt.Sprintf(oldHuge, "huge", "1000"))
	c.apply(fmt.Sprintf(oldHuge, "local", "0.05"))
	r.until("gone/db/0", "get", "volumes")
	r.run("wait", "gone")
	r.run("delete", "app", "gone", "--wait")
	r.run("wait", "shop", "--timeout", "1m")
	r.apply(fmt.Sprintf(oldShop, 2))
	r.run("wait", "shop", "--timeout", "1m")
	c.run("wait", "local")
	c.run("cordon", "w1", "--reason", "for the set")
	c.run("cluster", "grant", "workers", "drain")
	shown := views(r, c)

	// What was changed while the root was away, and a worker that was frozen.
	root.kill()
	c.run("scale", "shop/web", "1", "--no-wait")
	c.until("Amended", "events")
	if out, err := exec.Command(p.program, "worker", "hold", "--data", p.data("worker"), "--reason", "for the set").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster.kill()
	worker.kill()
	text, err := json.MarshalIndent(shown, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	olddata.Write(t, "..", name, olddata.Views, text)
	for _, role := range []string{"root", "cluster", "worker"} {
		olddata.Write(t, "..", name, role+".tar", olddata.Pack(t, p.data(role), "images", "oci", "native", "wasm", "vm", "volumes"))
	}
}

func TestOldData(t *testing.T) {
	if *writeOldData != "" {
		makeOldData(t, *writeOldData)
		return
	}
	for _, version := range olddata.Versions(t) {
		t.Run(version, func(t *testing.T) {
			o := openOldData(t, version)
			o.start(o.program, o.program, o.program)
			o.same()
			o.works("after")
			await(t, "the root adopts what the site changed while it was away", func() bool {
				return strings.Count(o.r.run("get", "app", "shop", "-o", "yaml"), "replicas: 2") == 0
			})
			for _, role := range o.roles {
				role.kill()
			}
			// A program that would lose something of what a newer one wrote does not start.
			for name, key := range map[string]string{"root": "app/default/shop", "cluster": "worker/w1", "worker": "hold"} {
				o.fromLater(name, key)
				out, err := exec.CommandContext(t.Context(), o.program, o.args[name]...).CombinedOutput()
				if err == nil || !strings.Contains(string(out), "written by version 99.1") || !strings.Contains(string(out), ": fromLater") || !strings.Contains(string(out), "restore a backup") {
					t.Errorf("%s over the data of a later version: %v: %s", name, err, out)
				}
			}
		})
	}
}

// oldSite is three roles over the data of an earlier version.
type oldSite struct {
	*processes
	version string
	args    map[string][]string
	roles   []*role
	r, c    *operator
	shown   map[string]json.RawMessage
}

func openOldData(t *testing.T, version string) *oldSite {
	t.Helper()
	o := &oldSite{processes: newProcesses(t, "worker"), version: version}
	for _, role := range []string{"root", "cluster", "worker"} {
		olddata.Unpack(t, version, role, o.data(role))
	}
	if err := json.Unmarshal(olddata.File(t, version, olddata.Views), &o.shown); err != nil {
		t.Fatal(err)
	}
	o.args = map[string][]string{
		"root":    {"root", "--data", o.data("root"), "--link", "127.0.0.1:7443", "--api", "127.0.0.1:7480"},
		"cluster": {"cluster", "--name", "harbour", "--data", o.data("cluster"), "--root", "127.0.0.1:7443", "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481", "--admission", o.admission(), "--lost-after", "1m"},
		"worker":  {"worker", "--name", "w1", "--data", o.data("worker"), "--cluster", "127.0.0.1:7444", "--run-dir", o.data("run"), "--cgroup-parent", o.cgroup(), "--address", "127.0.0.1", "--http", ""},
	}
	return o
}

// start starts the roles, each with a program of its own, and waits until they are connected.
func (o *oldSite) start(root, cluster, worker string) {
	t := o.t
	t.Helper()
	for _, r := range o.roles {
		r.kill()
	}
	o.roles = nil
	for _, p := range []struct{ name, program string }{{"root", root}, {"cluster", cluster}, {"worker", worker}} {
		r := &role{name: p.name, args: o.args[p.name]}
		r.start(t, p.program, o.log)
		o.all, o.roles = append(o.all, r), append(o.roles, r)
	}
	o.r = operatorOf(t, o.program, "https://127.0.0.1:7480", o.data("root"))
	o.c = operatorOf(t, o.program, "https://127.0.0.1:7481", o.data("cluster"))
	await(t, "all are connected", func() bool {
		for _, of := range []string{"cluster", "worker"} {
			out, err := exec.Command(o.program, of, "status", "--data", o.data(of), "-o", "json").Output()
			if err != nil || !strings.Contains(string(out), `"connected": true`) {
				return false
			}
		}
		return true
	})
}

// same checks that commands show what they showed in the earlier version, but what has happened since.
func (o *oldSite) same() {
	o.t.Helper()
	now := views(o.r, o.c)
	for _, command := range oldViews {
		var was, is any
		if err := errors.Join(json.Unmarshal(o.shown[command], &was), json.Unmarshal(now[command], &is)); err != nil {
			o.t.Fatalf("%s: %v", command, err)
		}
		for _, d := range missing("", was, is) {
			o.t.Errorf("%s: %s", command, d)
		}
	}
}

// living are fields of views that change by themselves.
var living = []string{"instances", "status", "ready", "upToDate", "reason", "connected", "lastSeen", "used", "machine", "version", "boot", "expires", "issued", "counter", "conditions", "usedBy",
	"usage", "revisions", "updatedAt", "services", "generation", "observed", "rollout", "running", "attempt"}

// missing names what a view showed and does not show now. Lists may have grown.
func missing(path string, was, is any) (out []string) {
	switch w := was.(type) {
	case map[string]any:
		i, _ := is.(map[string]any)
		for k, v := range w {
			if !slices.Contains(living, k) {
				out = append(out, missing(path+"."+k, v, i[k])...)
			}
		}
	case []any:
		i, _ := is.([]any)
		for n, v := range w {
			if !slices.ContainsFunc(i, func(e any) bool { return len(missing("", v, e)) == 0 }) {
				text, _ := json.Marshal(v)
				out = append(out, fmt.Sprintf("%s[%d] is not there any more: %s", path, n, text))
			}
		}
	default:
		if !reflect.DeepEqual(was, is) {
			out = append(out, fmt.Sprintf("%s was %v and is %v", path, was, is))
		}
	}
	return out
}

// works deploys an application.
func (o *oldSite) works(name string) {
	o.t.Helper()
	if out, err := exec.Command(o.program, "worker", "release", "--data", o.data("worker")).CombinedOutput(); err != nil && !strings.Contains(string(out), "not") {
		o.t.Errorf("%v: %s", err, out)
	}
	if _, err := o.c.try("", "uncordon", "w1"); err != nil {
		o.t.Error(err)
	}
	o.r.apply(fmt.Sprintf(oldHuge, name, "0.05"))
	o.r.run("wait", name, "--timeout", "1m")
	o.r.run("wait", "shop", "--timeout", "1m")
}

// fromLater adds a field of a later version to a record, in a role's store.
func (o *oldSite) fromLater(role, key string) {
	o.t.Helper()
	ctx := o.t.Context()
	st, err := store.Open(ctx, "sqlite:"+filepath.Join(o.data(role), node.StateFile), store.Options{})
	if err != nil {
		o.t.Fatal(err)
	}
	defer st.Close()
	rec, err := st.Get(ctx, key)
	var value []byte
	if err == nil {
		value = append([]byte(`{"fromLater":1,`), rec.Value[1:]...)
	} else {
		value = []byte(`{"fromLater":1}`)
	}
	if _, err := st.Commit(ctx, []store.Op{{Key: key, Value: value}, {Key: tier.KeyWriter, Value: []byte(`"99.1"`)}}); err != nil {
		o.t.Fatal(err)
	}
}

// buildOf builds the program of the commit that added the set of a version.
func buildOf(t *testing.T, version string) (program string) {
	t.Helper()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		if err != nil {
			t.Skip(&testenv.Unsupported{What: "programs of earlier versions", Why: fmt.Sprintf("the history of the sources is not here: %v: %s", err, out)})
		}
		return strings.TrimSpace(string(out))
	}
	list := strings.Fields(git("log", "--format=%H", "--diff-filter=A", "--", ":/"+olddata.Dir+"/"+version+"/root.tar.zst"))
	if len(list) == 0 {
		t.Skip(&testenv.Unsupported{What: "programs of earlier versions", Why: "the history of the sources does not go back to " + version})
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git("worktree", "add", "--detach", tree, list[0])
	t.Cleanup(func() {
		if out, err := exec.Command("git", "worktree", "remove", "--force", tree).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	program = filepath.Join(t.TempDir(), "skerry-"+version)
	outside(t, "modules of "+version, "env", "CGO_ENABLED=0", "go", "-C", tree, "build", "-trimpath",
		"-ldflags=-s -w -X main.version="+version, "-o", program, "./cmd/skerry")
	return program
}

// TestMixedVersions upgrades the roles of each earlier version one after the other, in each order, and takes them back. Nothing is lost, and
// each mixture deploys.
func TestMixedVersions(t *testing.T) {
	testenv.Long(t, "TestOldData")
	for _, version := range olddata.Versions(t) {
		t.Run(version, func(t *testing.T) {
			old := buildOf(t, version)
			o := openOldData(t, version)
			pick := func(newer bool) string {
				if newer {
					return o.program
				}
				return old
			}
			for n, m := range [][3]bool{{}, {true, false, false}, {true, true, false}, {true, true, true}, {false, true, true}, {false, false, true}, {true, false, true}, {false, true, false}, {}} {
				o.start(pick(m[0]), pick(m[1]), pick(m[2]))
				o.same()
				o.works(fmt.Sprintf("mixed%d", n))
				if t.Failed() {
					t.Fatalf("with newer root, cluster and worker: %v", m)
				}
			}
		})
	}
}
