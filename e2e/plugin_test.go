//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// pluginSite is a cluster of its own with a worker and a directory of plugins.
func pluginSite(t *testing.T) (*site, string) {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), log: logger(t)}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // programs run as nobody, who must find them
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster, err = parents.OpenCluster(t.Context(), parents.ClusterConfig{Common: node.Common{Dir: filepath.Join(s.dir, "cluster"),
		Log: s.log.With("role", "cluster")},
		Server: cluster.ServerOptions{Link: "127.0.0.1:0",
			Options: clustercore.Options{Standalone: true, Admission: clustercore.Admission{Trusted: []string{parents.DefaultOrg}}}},
		Join: node.Join{Name: "island"},
		Plugins: parents.PluginConfig{Dir: dir, Shim: []string{self, parents.PluginShimCommand},
			CgroupParent: cgroupParent(filepath.Dir(s.dir)) + "-plugins"}})
	if err != nil {
		t.Fatal(err)
	}
	s.run("cluster", s.Cluster.Run, s.Cluster.Close)
	s.await("the cluster listens", func() bool { return s.Cluster.LinkAddr() != nil })
	if err := parents.Seed(t.Context(), s.Cluster); err != nil {
		t.Fatal(err)
	}
	token, _, err := s.Cluster.Authority().CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierWorker})
	if err != nil {
		t.Fatal(err)
	}
	s.startWorker(token)
	t.Cleanup(s.stopWorker)
	return s, dir
}

func (s *site) plugin(dir, name, script, more string) {
	s.t.Helper()
	for file, text := range map[string]string{name + ".sh": "#!/bin/sh\n" + script + "\n",
		name + ".yaml": "kind: exec\nfile: " + name + ".sh\ntimeout: 1s\n" + more + "\n"} {
		tmp := filepath.Join(dir, "."+file)
		if err := os.WriteFile(tmp, []byte(text), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, file)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// explain gives what the cluster tells of a service's only instance.
func (s *site) explain(app string) (view.Explanation, bool) {
	list, err := s.Cluster.Instances(context.Background())
	if err != nil {
		return view.Explanation{}, false
	}
	for _, i := range list {
		if i.Service.App.Name == app {
			e, err := s.Cluster.Explain(context.Background(), i.ID)
			return e, err == nil
		}
	}
	return view.Explanation{}, false
}

// TestPlugins: a service runs where a plugin says, a plugin that hangs is skipped with a reason that is told, and one that
// must be heard refuses until it answers; all of it while the cluster runs.
func TestPlugins(t *testing.T) {
	s, dir := pluginSite(t)
	bin := filepath.Join(t.TempDir(), "program")
	testenv.Build(t, bin, "skerry.dev/skerry/examples/shop/catalog")
	if _, err := s.Cluster.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/test/web:1"}); err != nil {
		t.Fatal(err)
	}
	start := func(name, policy string) {
		t.Helper()
		web := spec.ServiceSpec{Name: "web", Resources: spec.Resources{CPU: 100, Memory: 32 * skerry.MiB},
			Placement: spec.Placement{Policy: policy}}
		web.Image = "test/web:1"
		if _, err := s.Cluster.Do(t.Context(), app(name, web)); err != nil {
			t.Fatal(err)
		}
	}
	runs := func(name string) func() bool {
		return func() bool {
			e, ok := s.explain(name)
			return ok && e.Instance.State == skerry.Running && skerry.HasCondition(e.Instance.Conditions, skerry.Ready)
		}
	}

	// The plugin comes after the service that asks for it.
	start("chosen", "plugin/likes")
	s.await("the service waits for its plugin", func() bool {
		e, ok := s.explain("chosen")
		return ok && len(e.Instance.Why) > 0 && strings.Contains(e.Instance.Why[0].Text, `no scheduling plugin "likes"`)
	})
	s.plugin(dir, "likes", `while read -r q; do echo '{"scores":{"w1":0.75}}'; done`, "")
	s.await("the service is placed by the plugin", runs("chosen"))
	e, _ := s.explain("chosen")
	if d := e.Decision; d == nil || d.Policy != "ldp+plugin/likes" || d.Chosen != "w1" || len(d.Top) != 1 || d.Top[0].Score != 0.75 ||
		len(d.Plugins) != 1 || d.Plugins[0].Scores["w1"] != 0.75 {
		t.Errorf("%+v", d)
	}

	s.plugin(dir, "hangs", "read q; sleep 1000", "all: true")
	s.await("the plugin that hangs is there", func() bool { return len(s.Cluster.Plugins.List()) == 2 })
	start("patient", "")
	s.await("the service is placed without the plugin", runs("patient"))
	e, _ = s.explain("patient")
	if d := e.Decision; d == nil || d.Chosen != "w1" || len(d.Plugins) != 1 || !strings.Contains(d.Plugins[0].Skipped, "no answer in") ||
		len(d.Why) != 1 || !strings.Contains(d.Why[0].Text, "plugin hangs was skipped: no answer in") {
		t.Errorf("%+v", d)
	}

	s.plugin(dir, "strict", "exit 1", "all: true\nonFailure: reject")
	s.await("the plugin that rejects is there", func() bool { return len(s.Cluster.Plugins.List()) == 3 })
	start("refused", "")
	s.await("the service is refused", func() bool {
		e, ok := s.explain("refused")
		return ok && len(e.Instance.Why) > 0 && strings.Contains(e.Instance.Why[len(e.Instance.Why)-1].Text, "plugin strict gave no answer")
	})
	if e, _ = s.explain("refused"); e.Instance.Worker != "" {
		t.Errorf("%+v", e.Instance)
	}
	s.plugin(dir, "strict", `while read -r q; do echo '{}'; done`, "all: true\nonFailure: reject")
	s.await("the plugin that answers lets it in", runs("refused"))

	for _, name := range []string{"chosen", "patient", "refused"} {
		if _, err := s.Cluster.Do(t.Context(), apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	s.await("nothing is left", func() bool {
		list, err := s.Cluster.Instances(context.Background())
		return err == nil && len(list) == 0
	})
}
