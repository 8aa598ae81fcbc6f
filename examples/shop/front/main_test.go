package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"skerry.dev/skerry/examples/shop/endpoints"
)

func TestFront(t *testing.T) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /items", "GET /orders":
			w.Write([]byte(`[]`))
		case "POST /orders/rope":
			w.Write([]byte(`{"id":"o-1"}`))
		default:
			http.NotFound(w, r)
		}
	}))
	defer back.Close()
	d := endpoints.New()
	d.File = filepath.Join(t.TempDir(), "endpoints.json")
	at := back.Listener.Addr().String()
	list, _ := json.Marshal(map[string][]endpoints.Endpoint{"catalog": {{Instance: "c.1", Address: at}}, "orders": {{Instance: "o.1", Address: at}}})
	if err := os.WriteFile(d.File, list, 0o600); err != nil {
		t.Fatal(err)
	}
	h := (&front{"f.1", "w1", d}).handler()
	do := func(method, path string, status int) (p Page) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != status {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		json.Unmarshal(w.Body.Bytes(), &p)
		return p
	}
	if p := do("GET", "/", 200); p.Instance != "f.1" || p.Worker != "w1" || p.Catalog.Instance != "c.1" || p.Orders.Instance != "o.1" {
		t.Errorf("%+v", p)
	}
	if p := do("POST", "/buy/rope", 200); string(p.Orders.Answer) == "" || p.Orders.Instance != "o.1" {
		t.Errorf("%+v", p)
	}
	do("POST", "/buy/boat", 404)
	back.Close()
	if p := do("GET", "/", 502); p.Catalog.Error == "" || p.Orders.Error == "" {
		t.Errorf("%+v", p)
	}
}
