//go:build linux

package artifact

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPushToADepotThatIsAway: a client of ours sends a blob once to a registry that has itself tried to reach its depot, and shows why it
// is refused. A registry that is in need for another reason is asked again.
func TestPushToADepotThatIsAway(t *testing.T) {
	d := newShelf()
	reg := d.again(t)
	const name = depotRegistry + "/team/app:1"
	mine := built(t, name)
	var asked atomic.Int32
	d.then(func(method, object string) error {
		if method == http.MethodPut && strings.HasPrefix(object, depotBlobs) {
			asked.Add(1)
			return errors.New("nobody answers")
		}
		return nil
	})
	_, err := mine.Push(t.Context(), name, name, &Source{BaseURL: "http://" + reg.host}, nil)
	if err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("push to a registry whose depot is away: got %v, want why", err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("tries of one blob: got %d, want 1", n)
	}
	d.then(nil)
	var busy atomic.Int32
	front := startHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && busy.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		reg.ServeHTTP(w, r)
	}))
	if _, err := mine.Push(t.Context(), name, name, &Source{BaseURL: "http://" + front}, nil); err != nil {
		t.Errorf("push to a registry that was busy once: got %v, want no error", err)
	}
	reg.wantPulled("team/app:1")
}
