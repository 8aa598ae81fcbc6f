package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"skerry.dev/skerry/api"
)

// TestOpenAPIHeaders holds the document to OpenAPI's own rule: what a client sends and accepts is described by types of content, because a
// parameter for one of these headers is ignored.
func TestOpenAPIHeaders(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			Responses   map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(newRoot(t).API.Handler().OpenAPI(), &doc); err != nil {
		t.Fatalf("read the document: %v", err)
	}
	for _, operations := range doc.Paths {
		for _, operation := range operations {
			for _, p := range operation.Parameters {
				if p.In == "header" && slices.Contains([]string{"Accept", "Content-Type", "Authorization"}, p.Name) {
					t.Errorf("%s has a parameter for the header %s", operation.OperationID, p.Name)
				}
			}
		}
	}
	content := doc.Paths["/v1/watch"]["get"].Responses["200"].Content
	for _, kind := range []string{"application/x-ndjson", "text/event-stream"} {
		if content[kind] == nil {
			t.Errorf("a watch is described as %v, without %s", content, kind)
		}
	}
}

// TestDocumentWhileRequestsAreRead has the document written while other requests are held against their schemas, which must not change
// then: reading them takes no lock.
func TestDocumentWhileRequestsAreRead(t *testing.T) {
	s := newRoot(t)
	h, err := api.NewHandler(api.Options{Backend: s.Root, People: s.API.People})
	must(t, err)
	before := h.Schemas()
	var asking sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := httptest.NewRequest("POST", "/v1/auth/login", strings.NewReader(`{"user":"nobody","password":"x","more":1}`))
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
	if doc := h.OpenAPI(); !strings.Contains(string(doc), `"ManifestService"`) {
		t.Error("the document has no schema of services in manifests")
	}
	close(stop)
	asking.Wait()
	if after := h.Schemas(); !slices.Equal(after, before) {
		t.Errorf("schemas that requests are held against: got %d once the document was written, want the same %d as before", len(after),
			len(before))
	}
}
