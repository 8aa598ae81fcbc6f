//go:build linux

package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_CRASH_CHILD"); path != "" {
		crashChild(path)
		return
	}
	os.Exit(testenv.Main(m, testenv.Options{}))
}

func mustOpen(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return mustOpen(t, "memory:") })
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return mustOpen(t, "sqlite:"+filepath.Join(t.TempDir(), "odd ?#%41 name.db"))
	})
}

func TestSQLiteDurable(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	storetest.RunDurable(t, func(t *testing.T) store.Store { return mustOpen(t, url) })
}

func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{"", "sqlite:", "sqlite:/tmp/", "memory:x", "redis://x", "etcd://", "etcd:///p", "/var/lib/x"} {
		if s, err := store.Open(context.Background(), url, store.Options{}); err == nil {
			s.Close()
			t.Errorf("%q was opened", url)
		} else {
			t.Log(err)
		}
	}
}
