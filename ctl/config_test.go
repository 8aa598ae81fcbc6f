package ctl

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
)

func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "config.yaml")
	t.Setenv("SKERRY_CONFIG", path)
	if c, err := LoadConfig(path); err != nil || len(c.Contexts) != 0 {
		t.Fatalf("a missing file gives %v, %v", c, err)
	}
	err := UpdateConfig(path, func(c *Config) error {
		c.Put(&Context{Name: "a", Server: "https://a:1"})
		c.Put(&Context{Name: "b", Server: "https://b:1"})
		c.Put(&Context{Name: "a", Server: "https://a:2"})
		c.Current = "a"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	store := tokenStore{"a"}
	want := auth.Tokens{Access: "x", Refresh: "y", Expires: time.Now().Round(time.Second), User: "u"}
	if err := store.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := store.Load()
	if err != nil || got.Access != "x" || got.Refresh != "y" || !got.Expires.Equal(want.Expires) || got.User != "u" {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := (tokenStore{"gone"}).Save(want); err == nil {
		t.Error("tokens were kept for a context that does not exist")
	}
	a := &app{}
	if x, err := a.chosen(); err != nil || x.Server != "https://a:2" {
		t.Errorf("chosen %v, %v", x, err)
	}
	a.contextName = "b"
	if x, err := a.chosen(); err != nil || x.Name != "b" {
		t.Errorf("chosen %v, %v", x, err)
	}
	a.contextName = "c"
	if _, err := a.chosen(); err == nil {
		t.Error("a context that does not exist was chosen")
	}
	UpdateConfig(path, func(c *Config) error { c.Remove("a"); return nil })
	if c, _ := LoadConfig(path); c.Current != "" || len(c.Contexts) != 1 {
		t.Errorf("after removal: %+v", c)
	}
}

// Two commands that change the file at the same time both have their way.
func TestConfigConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			if err := UpdateConfig(path, func(c *Config) error { c.Put(&Context{Name: fmt.Sprint("c", n), Server: "s"}); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c, err := LoadConfig(path); err != nil || len(c.Contexts) != 20 {
		t.Errorf("%d contexts, %v", len(c.Contexts), err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, text := range []string{"contexts: x", "contexts: [{name: a}, {name: a}]", "contexts: [{server: x}]", "contexs: []", "a: [", "contexts: [null]"} {
		if _, err := parseConfig("f", []byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestServerURL(t *testing.T) {
	for in, want := range map[string]string{"h": "https://h:7480", "h:1": "https://h:1", "http://127.0.0.1:9/": "http://127.0.0.1:9", "https://[::1]": "https://[::1]:7480"} {
		if got, err := serverURL(in); err != nil || got != want {
			t.Errorf("%q: %q %v", in, got, err)
		}
	}
	if _, err := serverURL("https://"); err == nil {
		t.Error("no host was taken")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte("current: a\ncontexts:\n- name: a\n  server: https://h:1\n  expires: 2030-01-01T00:00:00Z\n"))
	f.Add([]byte("contexts: [{name: a}, {name: a}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig("f", data)
		if err == nil && c == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}
