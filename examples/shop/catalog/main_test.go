package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCatalog(t *testing.T) {
	h := handler("catalog.0", []Item{{"rope", "Rope", 3500}})
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/healthz", 200, "ok"},
		{"/items", 200, `[{"id":"rope","name":"Rope","price":3500}]`},
		{"/items/rope", 200, `{"id":"rope","name":"Rope","price":3500}`},
		{"/items/boat", 404, "no such item"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}
