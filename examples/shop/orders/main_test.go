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

func TestOrders(t *testing.T) {
	catalog := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/items/rope" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(`{"id":"rope","price":3500}`))
	}))
	defer catalog.Close()
	d := endpoints.New()
	d.File = filepath.Join(t.TempDir(), "endpoints.json")
	list, _ := json.Marshal(map[string][]endpoints.Endpoint{"catalog": {{Instance: "catalog.7", Address: catalog.Listener.Addr().String()}}})
	if err := os.WriteFile(d.File, list, 0o600); err != nil {
		t.Fatal(err)
	}
	h := (&book{instance: "orders.1", catalog: d}).handler()
	do := func(method, path string, status int, into any) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != status {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		if into != nil {
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	var o Order
	do("POST", "/orders/rope", 200, &o)
	want := Order{"orders.1-1", "rope", 3500, "catalog.7"}
	if o != want {
		t.Error(o)
	}
	do("POST", "/orders/boat", 404, nil)
	var all []Order
	do("GET", "/orders", 200, &all)
	if len(all) != 1 || all[0] != want {
		t.Error(all)
	}
	catalog.Close()
	do("POST", "/orders/rope", 502, nil)
}
