package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func server(t *testing.T, status int, name string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"name": name})
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func write(t *testing.T, d *Directory, all map[string][]Endpoint) {
	t.Helper()
	b, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(d.File, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDo(t *testing.T) {
	d := New()
	d.File = filepath.Join(t.TempDir(), "endpoints.json")
	var got struct{ Name string }
	if _, _, err := d.Do(t.Context(), "GET", "web", "/", &got); err == nil {
		t.Error("there is no file yet")
	}
	write(t, d, nil)
	if _, _, err := d.Do(t.Context(), "GET", "web", "/", &got); err == nil || !strings.Contains(err.Error(), "no instance is ready") {
		t.Error(err)
	}
	// One that is gone and one that fails are passed over, whichever comes first.
	good := Endpoint{"web.2", "http", server(t, 200, "two")}
	write(t, d, map[string][]Endpoint{"web": {{"web.0", "http", "127.0.0.1:1"}, {"web.1", "http", server(t, 503, "one")}, good}})
	for range 6 {
		e, status, err := d.Do(t.Context(), "GET", "web", "/", &got)
		if err != nil || status != 200 || e != good || got.Name != "two" {
			t.Error(e, status, got, err)
		}
	}
	// The file is read anew.
	write(t, d, map[string][]Endpoint{"web": {{"web.3", "http", server(t, 404, "")}}})
	if e, status, err := d.Do(t.Context(), "GET", "web", "/", &got); err != nil || status != 404 || e.Instance != "web.3" {
		t.Error(e, status, err)
	}
	// Behind one address is another instance each time.
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Instance", fmt.Sprint("web.", n))
		if n++; n < tries {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(map[string]string{"name": "in turn"})
	}))
	t.Cleanup(s.Close)
	write(t, d, map[string][]Endpoint{"web": {{"", "http", strings.TrimPrefix(s.URL, "http://")}}})
	if e, status, err := d.Do(t.Context(), "GET", "web", "/", &got); err != nil || status != 200 || e.Instance != "web.2" || got.Name != "in turn" {
		t.Error(e, status, err)
	}
}
