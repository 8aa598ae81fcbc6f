package apps

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestDefinitionsAreBounded has an organisation fill the store with what no quota of instances counts.
func TestDefinitionsAreBounded(t *testing.T) {
	c := controller(t, Quota{Definitions: 200 * skerry.KiB})
	do(t, c, PutOrg{Org: Org{Name: "other"}})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "second", Org: "harbour"}})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "theirs", Org: "other"}})
	stored := map[string][]byte{}
	take := func(msg any) {
		t.Helper()
		for _, w := range do(t, c, msg).Writes {
			if stored[w.Key] = w.Value; w.Value == nil {
				delete(stored, w.Key)
			}
		}
		if faults := c.Audit(); len(faults) > 0 {
			t.Fatalf("after %T: %q", msg, faults)
		}
	}
	large := func(namespace, name, image string, size int) Apply {
		return apply(0, func(a *Apply) {
			a.App.Metadata = spec.Metadata{Namespace: namespace, Name: name}
			a.App.Spec.Services[0].Image = image
			a.App.Spec.Services[0].Config = []spec.ConfigFile{{Path: "/etc/x", Content: strings.Repeat("x", size)}}
		})
	}
	for n := range 8 {
		take(large([]string{"default", "second"}[n%2], fmt.Sprint("app-", n), "web:1", 20<<10))
	}
	const why = "may take 200Ki of the store; they take "
	refused(t, c, large("second", "more", "web:1", 40<<10), skerry.CodeQuota, why)
	dry := large("second", "more", "web:1", 40<<10)
	dry.DryRun = true
	refused(t, c, dry, skerry.CodeQuota, why)
	for n := range 5 { // a small one counts for four KiB
		take(large("second", fmt.Sprint("small-", n), "web:1", 0))
	}
	secret := func(namespace, name string, size int) PutSecret {
		return PutSecret{Namespace: namespace, Name: name, Version: SecretVersion{ID: "a", Sealed: make([]byte, size)}}
	}
	refused(t, c, secret("default", "db", 20<<10), skerry.CodeQuota, why)
	take(secret("default", "small", 10))
	take(large("theirs", "app", "web:1", 100<<10))
	take(secret("theirs", "db", 20<<10))
	for n := range 30 { // versions of what there is come and go
		take(large("default", "app-0", fmt.Sprintf("web:%d", n%9+1), 20<<10))
	}
	if n := c.Usage("harbour", skerry.AppKey{}).Definitions; n > 250*skerry.KiB {
		t.Errorf("with versions the organisation has %s", n)
	}
	list := c.history.earlier[skerry.AppKey{Namespace: "default", Name: "app-0"}]
	if len(list) != 1 || list[0].Manifest.Spec.Services[0].Image != "web:2" {
		t.Errorf("%d earlier versions of one that is above the bound, want the last one", len(list))
	}
	again := New([16]byte{1}, "t")
	for key, value := range stored {
		if known, err := again.Load(key, value); !known || err != nil {
			t.Errorf("read %s: %v %v", key, known, err)
		}
	}
	if !maps.Equal(again.lifecycle.stored.by, c.lifecycle.stored.by) {
		t.Errorf("after a start %v count, before %v", again.lifecycle.stored.by, c.lifecycle.stored.by)
	}
	refused(t, c, large("default", "more", "web:1", 0), skerry.CodeQuota, why)
	for n := range 4 {
		take(Delete{Key: skerry.AppKey{Namespace: []string{"default", "second"}[n%2], Name: fmt.Sprint("app-", n)}})
	}
	take(large("default", "more", "web:1", 40<<10))
	take(PutOrg{Org: Org{Name: "harbour", Quota: Quota{Definitions: skerry.MiB}}})
	take(secret("default", "db", 200<<10))
	refused(t, c, PutOrg{Org: Org{Name: "harbour", Quota: Quota{Definitions: -1}}}, skerry.CodeInvalid, "zero or more")
}

func TestDefinitionsHaveADefault(t *testing.T) {
	for asked, want := range map[skerry.Bytes]skerry.Bytes{0: skerry.GiB, skerry.MiB: skerry.MiB} {
		if got := (Quota{Definitions: asked}).MayDefine(); got != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}

func TestNamespacesAreBounded(t *testing.T) {
	c := controller(t, Quota{})
	do(t, c, PutOrg{Org: Org{Name: "other"}})
	for n := range maxNamespaces - 1 { // there is one
		do(t, c, PutNamespace{Namespace: Namespace{Name: fmt.Sprint("ns-", n), Org: "harbour"}})
	}
	refused(t, c, PutNamespace{Namespace: Namespace{Name: "more", Org: "harbour"}}, skerry.CodeQuota, "has 1000 namespaces")
	do(t, c, PutNamespace{Namespace: Namespace{Name: "ns-1", Org: "harbour"}}) // one that there is
	do(t, c, PutNamespace{Namespace: Namespace{Name: "theirs", Org: "other"}})
	do(t, c, DeleteNamespace{Name: "ns-1"})
	do(t, c, PutNamespace{Namespace: Namespace{Name: "more", Org: "harbour"}})
}
