package api_test

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// TestManifestOfAVersion: an application's manifest is shown as it was written, now and in each generation that is kept.
func TestManifestOfAVersion(t *testing.T) {
	const written = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"notes"},` +
		`"spec":{"services":[{"name":"web","runtime":"native","command":["/bin/echo"],"args":["one\ntwo\n"]}]}}`
	const emptyParts = `,"security":{},"resources":{},"placement":{},"probes":{},"restart":{},"update":{},"logs":{}`
	changed := strings.Replace(written, "two", "three", 1)
	for name, s := range map[string]*site{"root": newRoot(t), "cluster": newCluster(t)} {
		admin, key := s.admin(), skerry.AppKey{Namespace: "default", Name: "notes"}
		for _, manifest := range []string{written, changed} {
			if _, err := admin.Apply(t.Context(), []byte(manifest), api.ApplyOptions{}); err != nil {
				t.Fatalf("%s: apply: %v", name, err)
			}
		}
		for gen, want := range map[skerry.Generation]string{0: changed, 1: written, 2: changed} {
			got, err := admin.AppVersion(t.Context(), key, gen)
			if err != nil {
				t.Errorf("%s: manifest of generation %d: %v", name, gen, err)
				continue
			}
			raw, err := json.Marshal(got.Manifest)
			text := strings.Replace(string(raw), emptyParts, "", 1)
			if err != nil || text != want {
				t.Errorf("%s: manifest of generation %d: got %s, %v, want %s", name, gen, text, err, want)
			}
			if wantGen := cmp.Or(gen, 2); got.Gen != wantGen || got.Author != "admin" {
				t.Errorf("%s: version %d: got generation %d by %q, want %d by admin", name, gen, got.Gen, got.Author, wantGen)
			}
		}
		_, err := admin.AppVersion(t.Context(), key, 7)
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeNotFound || !strings.Contains(err.Error(), "no generation 7") {
			t.Errorf("%s: a generation that was never: got %v, want it not found", name, err)
		}
	}
}
