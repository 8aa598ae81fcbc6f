package api_test

import (
	"encoding/json"
	"slices"
	"testing"
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
