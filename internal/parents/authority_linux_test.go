package parents

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/root"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// A role whose store is gone does not become another site with another authority, and says so when the key of its secrets is gone.
func TestLostStoreIsNoNewSite(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	common := func(role string) node.Common {
		return node.Common{Dir: filepath.Join(dir, role), Log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	starts := map[string]func(rebuild bool) (pin string, err error){
		"root": func(bool) (string, error) {
			r, err := OpenRoot(t.Context(), RootConfig{Common: common("root"), Server: root.ServerOptions{Link: "127.0.0.1:0"}})
			if err != nil {
				return "", err
			}
			return r.Authority().Pin(), r.Close()
		},
		"cluster": func(rebuild bool) (string, error) {
			c, err := OpenCluster(t.Context(), ClusterConfig{Common: common("cluster"), Join: node.Join{Name: "harbour"},
				Server: cluster.ServerOptions{Link: "127.0.0.1:0", Profile: clustercore.Fast,
					Options: clustercore.Options{Standalone: true, Rebuild: rebuild}}})
			if err != nil {
				return "", err
			}
			return c.Authority().Pin(), c.Close()
		},
	}
	for role, start := range starts {
		first, err := start(false)
		if err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		log.Reset()
		if err := os.Remove(filepath.Join(dir, role, vault.KeyFile)); err != nil {
			t.Fatal(err)
		}
		if again, err := start(false); err != nil || again != first {
			t.Fatalf("%s: %v; authority %s, then %s", role, err, first, again)
		}
		if !strings.Contains(log.String(), "the key of the secrets was missing") {
			t.Errorf("%s says nothing of its key: %s", role, log.String())
		}
		files, err := filepath.Glob(filepath.Join(dir, role, node.StateFile+"*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v: no store", role, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		_, err = start(false)
		if e := skerry.AsError(err); err == nil || e.Code != skerry.CodeUnavailable || !strings.Contains(e.Hint, "skerry restore --data") {
			t.Errorf("%s begins anew over a lost store: %v", role, err)
		}
		if role == "cluster" {
			if pin, err := start(true); err != nil || pin == first {
				t.Errorf("it is not rebuilt: %v", err)
			}
		}
	}
}

// A store that keeps nothing cannot be lost, and one that lies elsewhere is not found beside ca.pem.
func TestLostStoreElsewhere(t *testing.T) {
	dir := t.TempDir()
	start := func(url string) error {
		c := node.Common{Dir: dir, StoreURL: url, Log: slog.New(slog.DiscardHandler)}
		r, err := OpenRoot(t.Context(), RootConfig{Common: c, Server: root.ServerOptions{Link: "127.0.0.1:0"}})
		if err != nil {
			return err
		}
		return r.Close()
	}
	for _, url := range []string{"memory:", "memory:", ""} {
		if err := start(url); err != nil {
			t.Fatalf("store %q: %v", url, err)
		}
	}
	moved := "sqlite:" + filepath.Join(t.TempDir(), "moved.db")
	err := start(moved)
	if err == nil {
		t.Fatal("it begins anew elsewhere")
	}
	e := skerry.AsError(err)
	if !strings.Contains(e.Message, moved) || !strings.Contains(e.Hint, "--store "+moved) || strings.Contains(e.Hint, node.StateFile) {
		t.Errorf("of a store elsewhere it says %+v", e)
	}
}

// The message about a damaged identity has a way out.
func TestDamagedIdentity(t *testing.T) {
	c := node.Common{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, f := range []string{"identity.json", "key.pem"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, "identity"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.Dir, "identity", f), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.Member(t.Context(), wire.TierWorker, node.Join{}, nil, "")
		if e := skerry.AsError(err); err == nil || !strings.Contains(e.Hint, "skerry token create --role worker --name NAME --replace") {
			t.Errorf("%s: %v", f, err)
		}
	}
}
