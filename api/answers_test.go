package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
)

// What did not come from a Skerry server is no success: not a redirect, such as that of a proxy which wants a login first, and no page.
func TestAnswersOfOthers(t *testing.T) {
	calls := map[string]func(c *api.Client) error{
		"cordon": func(c *api.Client) error { return c.CordonWorker(t.Context(), "w1", "") },
		"delete": func(c *api.Client) error { return c.DeleteUser(t.Context(), "ada") },
		"get":    func(c *api.Client) error { _, err := c.Users(t.Context()); return err },
		"logs": func(c *api.Client) error {
			return c.Logs(t.Context(), "a", api.LogOptions{}, func(api.LogLine) error { return nil })
		},
		"log out": func(c *api.Client) error { return c.Logout(t.Context()) },
		"metrics": func(c *api.Client) error { _, err := c.Metrics(t.Context()); return err },
		"a snapshot": func(c *api.Client) error {
			_, err := c.ImportSnapshot(t.Context(), spec.VolumeClaim{}, "", strings.NewReader("x"), 1)
			return err
		},
		"its content": func(c *api.Client) error { _, _, err := c.OpenSnapshot(t.Context(), "s1"); return err },
	}
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect":          func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) },
		"one without a place": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<html>Log in</html>")
		},
	} {
		server := httptest.NewServer(answer)
		client, err := api.NewClient(api.ClientOptions{Server: server.URL, Bearer: "x"})
		if err != nil {
			t.Fatalf("make a client: %v", err)
		}
		for call, do := range calls {
			if err := do(client); err == nil {
				t.Errorf("%s: %s succeeds, want an error", name, call)
			}
		}
		client.Close()
		server.Close()
	}
}
