package plugin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// examples builds the example plugins into a site's directory.
func examples(t testing.TB, s *site) {
	t.Helper()
	cmd := exec.Command("../examples/plugins/build", s.dir)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	if strings.Contains(string(out), "no Rust compiler has the target") {
		t.Skip(&testenv.Unsupported{What: "the example plugins", Why: "no Rust compiler builds WebAssembly; apt-get install rustc libstd-rust-dev-wasm32 lld-14 wasi-libc"})
	}
	t.Fatalf("%v\n%s", err, out)
}

// TestExamples: the examples do what their descriptions say, in the limits that they ask for.
func TestExamples(t *testing.T) {
	s := newSite(t)
	s.opt.Cache = t.TempDir()
	examples(t, s)
	h := s.open()
	if want := []Info{{"greenest", true, false}, {"nearest", false, false}, {"nightshift", true, true}}; !slices.Equal(h.List(), want) {
		t.Errorf("%+v", h.List())
	}
	q := Sample()
	q.Candidates[2].Pressure.IO = 0.9
	q.Candidates[1].Power = nil
	q.Candidates[0].Location = nil
	q.Candidates[0].Labels["remark"] = "in \"quotes\"\n\\ and ünïcode\u2028"
	want := map[string]string{
		"greenest":   `{"scores":{"hamburg":1,"munich":0.3333333333333333}}`,
		"nearest":    `{"scores":{"bremen":0.513445,"munich":0.14049},"out":{"hamburg":"it does not say where it is"}}`,
		"nightshift": `{"scores":{"bremen":0.45,"hamburg":0.49},"out":{"munich":"its io is waited for 90% of the time; the limit is 50%"}}`,
	}
	for name, want := range want {
		a := h.Ask(t.Context(), []string{name}, q)[0]
		a.Plugin = ""
		got, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Replace(string(got), `"plugin":"",`, "", 1) != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(s.opt.Cache, "*", "*")); len(list) == 0 {
		t.Error("nothing compiled was kept")
	}
}

// BenchmarkAsk is one query and its checked answer, by kind of plugin.
func BenchmarkAsk(b *testing.B) {
	s := newSite(b)
	examples(b, s)
	s.wasm("tiny", says(`{"scores":{"a":0.5}}`))
	s.shell("shell", `while read -r q; do echo '{"scores":{"a":0.5}}'; done`)
	h := s.open()
	q := query()
	for _, name := range []string{"tiny", "nearest", "greenest", "shell", "nightshift"} {
		b.Run(name, func(b *testing.B) {
			good(b, h, name)
			for b.Loop() {
				if a := h.Ask(b.Context(), []string{name}, q); a[0].Skipped != "" {
					b.Fatal(a[0].Skipped)
				}
			}
		})
	}
	b.Run("load-greenest", func(b *testing.B) {
		s.opt.Cache = ""
		for b.Loop() {
			if err := load(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load-greenest-cached", func(b *testing.B) {
		s.opt.Cache = b.TempDir()
		if err := load(s); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := load(s); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// load loads the module of Go, and lets it go again.
func load(s *site) error {
	data, err := os.ReadFile(filepath.Join(s.dir, "greenest.yaml"))
	if err != nil {
		return err
	}
	d, err := ParseDescription(data)
	if err != nil {
		return err
	}
	h := &Host{opt: s.opt}
	if s.opt.Cache != "" {
		if h.cache, err = openCache(s.opt.Cache); err != nil {
			return err
		}
		defer h.cache.Close(s.t.Context())
	}
	w, err := newWasm(s.t.Context(), "greenest", d, filepath.Join(s.dir, d.File), h.cache, &lines{log: s.opt.Log})
	if err == nil {
		w.close()
	}
	return err
}
