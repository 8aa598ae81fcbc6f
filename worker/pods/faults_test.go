package pods

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/worker/pods/podstest"
)

// alone is a worker whose fleet does not run: what is in Kubernetes it has to ask for, and what it posts goes nowhere.
func alone(t *testing.T, url string) *Worker {
	t.Helper()
	client, _, err := Connect(Connection{Kubeconfig: podstest.Kubeconfig(t, t.TempDir(), url, "", "")})
	if err != nil {
		t.Fatal(err)
	}
	f := NewFleet(Options{Client: client, Style: Style{Namespace: "skerry", Site: "s"}, Patience: time.Minute,
		Log: slog.New(slog.DiscardHandler)})
	f.known["n1"] = nodeOf(t, aNode)
	worker := newWorker(f, "n1", "n1")
	worker.open(&Place{})
	worker.work.Store(tier.NewWork(t.Context()))
	return worker
}

// answering serves what a function answers.
func answering(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	h := httptest.NewServer(f)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// An answer that is no list, as of something in front of the API server, does not stand for a cluster that is empty.
func TestListThatIsNone(t *testing.T) {
	worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) { fmt.Fprint(to, `{}`) }))
	if _, err := worker.fleet.nodes.list(t.Context()); err == nil || worker.fleet.known["n1"] == nil {
		t.Errorf("list of {} = %v, and the node is known: %v; want an error, and true", err, worker.fleet.known["n1"] != nil)
	}
}
