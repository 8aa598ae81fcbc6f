package tier

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
)

type book struct {
	orgs   []apps.Org
	spaces []apps.Namespace
}

func (b book) Orgs(context.Context) ([]apps.Org, error)             { return b.orgs, nil }
func (b book) Namespaces(context.Context) ([]apps.Namespace, error) { return b.spaces, nil }

// Images that a role would not fetch again are listed, each service once for each of them.
func TestRestrictedImages(t *testing.T) {
	st, err := artifact.Open(filepath.Join(t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	guard := &artifact.Guard{Listed: []string{"10.0.0.9:5000", "ours.example"}, Organisations: map[string][]string{"ours.example": {"acme"}}}
	m := NewImages(st, artifact.Limits{}, false, &artifact.Source{Guard: guard})
	web := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	var used []UsedImage
	for _, ref := range []string{"web:1", imageref.BuiltIn + "/a/b:1", "10.0.0.9:5000/x:1", "192.0.2.1/x:1", "10.0.0.8:5000/x:1", "10.0.0.8:5000/x:1", "localhost:5000/x:1", "ours.example/x:1"} {
		used = append(used, UsedImage{web, "rival", ref})
	}
	used = append(used, UsedImage{web, "acme", "ours.example/x:1"})
	got, err := Restricted(t.Context(), m, book{}, used)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.1/x:1", "10.0.0.8:5000/x:1", "localhost:5000/x:1", "ours.example/x:1"}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, u := range got {
		if u.Service != web || u.Org != "rival" || !strings.Contains(u.Reason.Text, "image "+want[i]+" cannot be fetched") || u.Reason.Hint == "" {
			t.Errorf("%+v, want %s", u, want[i])
		}
	}
	guard.Only = true
	if got, err = Restricted(t.Context(), m, book{}, []UsedImage{{web, "acme", "reg.example/x:1"}}); err != nil || len(got) != 1 {
		t.Errorf("a registry that is not listed: %+v, %v", got, err)
	}
}
