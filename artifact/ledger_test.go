package artifact

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"skerry.dev/skerry/artifact/imageref"
)

type askedStandbys struct{ n atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (a *askedStandbys) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n.Add(1)
	return nil, http.ErrHandlerTimeout
}

// TestStandbysAreAskedLast: what comes from the tier above is asked for there, and not first at standbys, which do not have it and may not
// answer.
func TestStandbysAreAskedLast(t *testing.T) {
	serve := func(ledger *Ledger, above ...*Source) string {
		st, err := Open(filepath.Join(t.TempDir(), "images"), Options{Local: imageref.BuiltIn, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		srv := httptest.NewServer(&Handler{Store: st, Registry: imageref.BuiltIn, UpstreamLocal: above,
			Authorize: func(*http.Request, string, string) error { return nil }})
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().String()
	}
	root := serve(nil)
	standbys := &askedStandbys{}
	cluster := serve(&Ledger{Others: standbys}, &Source{BaseURL: "http://" + root})
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	at := func(host string) gname.Reference {
		ref, err := gname.ParseReference(host+"/shop/web:1", gname.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	if err := remote.Write(at(root), image); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(at(cluster))
	if err == nil {
		err = validate.Image(got)
	}
	if err != nil {
		t.Errorf("pull: got %v, want no error", err)
	}
	if n := standbys.n.Load(); n != 0 {
		t.Errorf("requests to standbys for an image of the tier above: got %d, want 0", n)
	}
}
