package plugin

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestHierarchies(t *testing.T) {
	v2 := t.TempDir()
	if err := os.WriteFile(filepath.Join(v2, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, c := range []struct {
		mountinfo string
		want      map[string]string
		unified   bool
	}{
		{"", map[string]string{}, false},
		{"1 2 0:3 / " + v2 + " rw - cgroup2 cgroup rw\n", map[string]string{"cpu": v2, "memory": v2, "pids": v2}, true},
		{"1 2 0:3 / " + empty + " rw - cgroup2 cgroup rw\n" +
			"1 2 0:4 / /c/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n1 2 0:5 / /c/memory rw - cgroup cgroup rw,memory\nodd\n",
			map[string]string{"cpu": "/c/cpu", "memory": "/c/memory"}, false},
	} {
		if got, unified := hierarchies(c.mountinfo); !reflect.DeepEqual(got, c.want) || unified != c.unified {
			t.Errorf("%s: %v %v", c.mountinfo, got, unified)
		}
	}
}

// TestUnified makes a group of version 2 in a plain directory; what the kernel makes of it is tested where there is one.
func TestUnified(t *testing.T) {
	root := t.TempDir()
	for _, c := range controllers {
		if err := os.MkdirAll(filepath.Join(root, "skerry-plugins", "p"), 0o755); err != nil {
			t.Fatal(err)
		}
		// Files of a real hierarchy are there already.
		for _, f := range []string{"cgroup.subtree_control", "skerry-plugins/cgroup.subtree_control", "skerry-plugins/p/memory.max", "skerry-plugins/p/memory.swap.max",
			"skerry-plugins/p/pids.max", "skerry-plugins/p/cpu.max"} {
			if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := descend(root, "skerry-plugins", c); err != nil {
			t.Fatal(err)
		}
		if err := limit(filepath.Join(root, "skerry-plugins", "p"), c, true, 64<<20); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, "skerry-plugins/cgroup.subtree_control"))
		if err != nil || string(text) != "+"+c {
			t.Errorf("%s %v", text, err)
		}
		text, err = os.ReadFile(filepath.Join(root, "skerry-plugins/p", c+".max"))
		if want := map[string]string{"memory": "67108864", "pids": "32", "cpu": "100000 100000"}[c]; err != nil || string(text) != want {
			t.Errorf("%s: %s %v", c, text, err)
		}
	}
}
