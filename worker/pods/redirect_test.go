package pods

import (
	"fmt"
	"net/http"
	"testing"
)

// TestRedirectsAreNotFollowed has an API server send whoever asks it to another server, such as one that only this machine reaches, of
// which somebody who reads a log would see the answer.
func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := make(chan string, 10)
	other := answering(t, func(to http.ResponseWriter, r *http.Request) {
		reached <- r.Method + " " + r.URL.Path
		fmt.Fprintln(to, "2026-01-01T00:00:00Z a password of the cloud")
	})
	client := alone(t, answering(t, func(to http.ResponseWriter, r *http.Request) {
		http.Redirect(to, r, other+"/latest/meta-data", http.StatusTemporaryRedirect)
	})).fleet.opt.Client
	body, err := client.open(t.Context(), http.MethodGet, podPath("skerry", "p")+"/log", nil, nil)
	if err == nil {
		body.Close()
	}
	if status(err) != http.StatusTemporaryRedirect || !passing(err) {
		t.Errorf("read a log: %v, want a redirect that may be gone later", err)
	}
	pod := &Pod{Metadata: Meta{Namespace: "skerry", Name: "p"}}
	if _, err := client.createPod(t.Context(), pod); status(err) != http.StatusTemporaryRedirect {
		t.Errorf("make a pod: %v", err)
	}
	select {
	case what := <-reached:
		t.Errorf("the other server was asked: %s", what)
	default:
	}
}
