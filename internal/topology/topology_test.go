package topology

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// machines are records of what Linux tells, in short: cores are "node:cache:threads".
func machine(nodes []string, caches []string, cores []string) fs.FS {
	sys := fstest.MapFS{}
	var online Set
	put := func(name, content string) {
		sys["devices/system/"+name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	for _, c := range cores {
		threads, _ := ParseSet(c)
		for _, t := range threads {
			put(fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", t), c)
		}
		online = online.Or(threads)
	}
	for _, c := range caches {
		threads, _ := ParseSet(c)
		for _, t := range threads {
			put(fmt.Sprintf("cpu/cpu%d/cache/index0/level", t), "1")
			put(fmt.Sprintf("cpu/cpu%d/cache/index0/shared_cpu_list", t), fmt.Sprint(t))
			put(fmt.Sprintf("cpu/cpu%d/cache/index1/level", t), "3")
			put(fmt.Sprintf("cpu/cpu%d/cache/index1/shared_cpu_list", t), c)
		}
	}
	for i, n := range nodes {
		put(fmt.Sprintf("node/node%d/cpulist", i), n)
	}
	put("cpu/online", online.String())
	return sys
}

// The machines of the tests: a small board, a server of two nodes with two caches each, a laptop with threads.
func board() fs.FS { return machine(nil, nil, []string{"0", "1", "2", "3"}) }

func laptop() fs.FS {
	return machine([]string{"0-7"}, []string{"0-7"}, []string{"0,4", "1,5", "2,6", "3,7"})
}

func server() fs.FS {
	return machine([]string{"0-7", "8-15"}, []string{"0-3", "4-7", "8-11", "12-15"},
		[]string{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"})
}

func TestTake(t *testing.T) {
	for _, c := range []struct {
		name string
		sys  fs.FS
		used string
		n    int
		want string
	}{
		{"a board", board(), "0", 2, "1-2"},
		{"too many", board(), "0", 4, ""},
		{"whole cores", laptop(), "0,4", 2, "1,5"},
		{"the odd thread", laptop(), "0,4", 3, "1-2,5"},
		{"the odd thread goes where one is used", laptop(), "0-1,4", 3, "2,5-6"},
		{"one cache", server(), "0-1", 4, "4-7"},
		{"the cache that it fills best", server(), "0-1", 2, "2-3"},
		{"one node", server(), "0-1", 6, "2-7"},
		{"over nodes when it must", server(), "0-1", 12, "2-13"},
		{"nothing", server(), "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Read(c.sys)
			if err != nil {
				t.Fatal(err)
			}
			used, _ := ParseSet(c.used)
			if got := m.Take(m.Online.Minus(used), c.n).String(); got != c.want {
				t.Errorf("took %s, want %s", got, c.want)
			}
		})
	}
}

func TestLendable(t *testing.T) {
	for name, c := range map[string]struct {
		sys  fs.FS
		want string
	}{
		"board": {board(), "1-3"}, "laptop": {laptop(), "1-3,5-7"}, "one core": {machine(nil, nil, []string{"0-1"}), "1"}, "one processor": {machine(nil, nil, []string{"0"}), ""},
	} {
		m, err := Read(c.sys)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Lendable().String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Whatever was taken before, what is taken is free, and as much as was asked for; and all can be taken.
func TestTakeEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, sys := range []fs.FS{board(), laptop(), server()} {
		m, err := Read(sys)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			free := slices.Clone(m.Online)
			for len(free) > 0 {
				n := 1 + rng.IntN(len(free))
				got := m.Take(free, n)
				if len(got) != n || len(got.Minus(free)) > 0 {
					t.Fatalf("asked for %d of %s, got %s", n, free, got)
				}
				free = free.Minus(got)
			}
			if got := m.Take(free, 1); got != nil {
				t.Fatalf("%s of nothing", got)
			}
		}
	}
}

// This machine can be read.
func TestHere(t *testing.T) {
	m, err := Read(os.DirFS("/sys"))
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string][]Set{"cores": m.Cores, "caches": m.Caches, "nodes": m.Nodes} {
		var all Set
		for _, s := range list {
			all = append(all, s...)
		}
		slices.Sort(all)
		if !slices.Equal(all, m.Online) {
			t.Errorf("%s %v are not %s", what, list, m.Online)
		}
	}
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "3,1,2", "5-2", "-1", "0-99999999", "1-", ",", "0-1,0-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseSet(s)
		if err != nil {
			return
		}
		again, err := ParseSet(set.String())
		if err != nil || !slices.Equal(again, set) {
			t.Errorf("%q is %v, and %v again, %v", s, set, again, err)
		}
	})
}
