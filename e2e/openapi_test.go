//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

// TestOpenAPI has schemathesis ask a root and its cluster for everything that their document describes, rightly and wrongly, and hold each
// answer against that: its status, its type and its shape. Its requests depend on the document alone.
func TestOpenAPI(t *testing.T) {
	python := pythonOf(t, "schemathesis", "testdata/schemathesis/requirements.txt")
	ctx := t.Context()
	p := newProcesses(t, "worker")
	p.threeRoles()
	root, cluster := login(t, "https://127.0.0.1:7480", p.data("root")), login(t, "https://127.0.0.1:7481", p.data("cluster"))
	tokens := map[*api.Client]api.NewAccessToken{}
	for _, c := range []*api.Client{root, cluster} {
		grants := []auth.Grant{{Role: auth.RoleAdmin, Org: auth.Any, Cluster: auth.Any}}
		if _, err := c.CreateUser(ctx, "asker", askerPassword, grants); err != nil {
			t.Fatalf("create the user who asks %s: %v", c.Server(), err)
		}
		token, err := c.CreateAccessToken(ctx, api.AccessTokenRequest{Name: "asker", User: "asker"})
		if err != nil {
			t.Fatalf("create an access token at %s: %v", c.Server(), err)
		}
		tokens[c] = token
		if _, err := c.PutSecret(ctx, "default", "password", false, spec.SecretValue{"value": []byte("tern")}); err != nil {
			t.Fatalf("create a secret at %s: %v", c.Server(), err)
		}
	}
	bin := filepath.Join(p.dir, "program")
	testenv.Build(t, bin, workload)
	pushFile(t, root, p.dir, "test/workload:1", bin)
	await(t, "the site works", func() bool {
		list, err := root.Clusters(ctx)
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) == 1
	})
	applied(t, root, "ledger", []byte(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"ledger"},"spec":{"services":[{"name":"db",
"image":"test/workload:1","args":["sleep"],"terminationGrace":"1s","resources":{"cpu":0.05,"memory":"32Mi"},
"volumes":[{"name":"data","local":{}}],"mounts":[{"volume":"data","path":"/data"}]}]}}`), 1)
	claim := spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "ledger"}, Service: "db"}}
	snapshot, err := cluster.TakeSnapshot(ctx, claim, 0)
	if err != nil {
		t.Fatalf("take a snapshot: %v", err)
	}
	instances, err := root.Instances(ctx, api.InstanceFilter{App: "ledger"})
	if err != nil || len(instances) != 1 {
		t.Fatalf("instances: %+v, %v; want one", instances, err)
	}

	var both sync.WaitGroup
	for _, c := range []*api.Client{root, cluster} {
		both.Go(func() {
			schemathesis(t, python, c.Server(), "INSTANCE="+string(instances[0].ID), "SNAPSHOT="+string(snapshot.ID),
				"TOKEN="+tokens[c].Text, "TOKEN_ID="+tokens[c].ID)
		})
	}
	both.Wait()
	for _, c := range []*api.Client{root, cluster} {
		statusesAreDescribed(t, c)
	}
}

// statusesAreDescribed holds each status that a server has answered with against what its document lists for the operation.
func statusesAreDescribed(t *testing.T, c *api.Client) {
	t.Helper()
	text, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatalf("read the document: %v", err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatalf("read the document: %v", err)
	}
	listed := map[string]map[string]any{}
	for _, operations := range doc.Paths {
		for _, o := range operations {
			listed[o.OperationID] = o.Responses
		}
	}
	// Whoever else was there may have been changed or logged out.
	if _, err := c.Login(t.Context(), "asker", askerPassword); err != nil {
		t.Fatalf("log in at %s: %v", c.Server(), err)
	}
	metrics, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatalf("metrics of %s: %v", c.Server(), err)
	}
	count := regexp.MustCompile(`skerry_api_requests_total{operation="([^"]+)",status="(\d+)"}`)
	counted := count.FindAllStringSubmatch(string(metrics), -1)
	if len(counted) < 100 {
		t.Errorf("operations and statuses that %s counted: got %d, want 100 at least", c.Server(), len(counted))
	}
	for _, m := range counted {
		if m[1] != "registry" && m[1] != "unknown" && listed[m[1]][m[2]] == nil {
			t.Errorf("%s answered %s with status %s, which its document does not list", c.Server(), m[1], m[2])
		}
	}
}

const askerPassword = "a tern over the skerry"

// schemathesis checks one server against its document.
func schemathesis(t *testing.T, python, server string, env ...string) {
	t.Helper()
	phases, least := "examples,fuzzing", 300
	if testenv.Systems() { // the boundaries of every constraint, and sequences of operations
		phases, least = "examples,coverage,fuzzing,stateful", 3000
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run",
		server+"/openapi.json", "--no-color", "--max-examples", fmt.Sprint(testenv.Times(6, 40)), "--phases", phases)
	cmd.Dir = "testdata/schemathesis"
	cmd.Env = append(append(os.Environ(), "ASKER=asker", "PYTHONDONTWRITEBYTECODE=1"), env...)
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err != nil {
		t.Errorf("schemathesis at %s: %v\n%s", server, err, out[max(0, strings.Index(out, "=== ERRORS")):])
	}
	asked := regexp.MustCompile(`(\d+) generated`).FindStringSubmatch(out)
	if asked == nil {
		t.Errorf("schemathesis does not say how much it asked:\n%s", out)
	} else if n, _ := strconv.Atoi(asked[1]); n < least {
		t.Errorf("schemathesis asked %s %d times, want %d at least:\n%s", server, n, least, out)
	}
}
