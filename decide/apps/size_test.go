package apps

import (
	"fmt"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Nobody makes a tier write a record that its store refuses: no other write would be taken then. What is allowed fits together with what
// else such a record may hold.
func TestRecordsOfLargeManifests(t *testing.T) {
	files := func(services int, content string) Apply {
		a := apply(1)
		one := a.App.Spec.Services[0]
		a.App.Spec.Services = nil
		for i := range services {
			one.Name = fmt.Sprint("s", i)
			one.Config = []spec.ConfigFile{{Path: "/etc/x", Content: content}}
			a.App.Spec.Services = append(a.App.Spec.Services, one)
		}
		return a
	}
	refs := func(long string) Apply {
		a := files(16, "")
		a.Digests = map[string]string{}
		for i := range a.App.Spec.Services {
			s := &a.App.Spec.Services[i]
			for j := range 19 {
				ref := fmt.Sprintf("reg.example/%s:%d-%d", long, i, j)
				k := spec.SideContainer{Name: fmt.Sprint("c", j)}
				k.Image = ref
				s.Sidecars = append(s.Sidecars, k)
				a.Digests[ref] = ref + "@sha256:" + strings.Repeat("a", 64)
			}
		}
		return a
	}
	for what, tt := range map[string]struct {
		a  Apply
		ok bool
	}{
		"as large as a service's files may be":      {files(1, strings.Repeat("x", spec.MaxConfigBytes)), true},
		"two services":                              {files(2, strings.Repeat("x", 200<<10)), true},
		"five services":                             {files(5, strings.Repeat("x", 250<<10)), false},
		"characters that take six bytes":            {files(1, strings.Repeat("<", 250<<10)), false},
		"images, of which each is there five times": {refs(strings.Repeat("x", 900)), false},
	} {
		s := newSite(t)
		fx, _ := s.c.Handle(s.now, tt.a)
		if tt.ok != (fx.Err == nil) || fx.Err != nil && !strings.Contains(fmt.Sprint(skerry.AsError(fx.Err).Problems), "as it is stored") {
			t.Errorf("%s: %v", what, fx.Err)
		}
		if fx.Err != nil && len(fx.Writes) > 0 {
			t.Errorf("%s: it was refused, and %d records are written", what, len(fx.Writes))
		}
		for _, w := range fx.Writes {
			if len(w.Value) > store.MaxValue/2 {
				t.Errorf("%s: record %s has %d bytes", what, w.Key, len(w.Value))
			}
		}
	}
}

// Nor by rotating a secret.
func TestRecordsOfLargeSecrets(t *testing.T) {
	s := newSite(t)
	put := func(n int) wire.Effects {
		fx, _ := s.c.Handle(s.now, PutSecret{Namespace: "default", Name: "db", Rotate: n > 0, Version: SecretVersion{ID: fmt.Sprint(n), Size: spec.MaxSecretBytes, Sealed: make([]byte, spec.MaxSecretBytes+1<<10)}})
		for _, w := range fx.Writes {
			if len(w.Value) > store.MaxValue {
				t.Fatalf("after %d rotations record %s has %d bytes", n, w.Key, len(w.Value))
			}
		}
		return fx
	}
	for n := range 5 {
		if fx := put(n); fx.Err != nil {
			t.Fatalf("after %d rotations: %v", n, fx.Err)
		}
	}
	x := s.c.secrets.byName[secretKey{"default", "db"}]
	if len(x.Versions) != 2 || x.newest().ID != "4" {
		t.Errorf("%d versions are kept", len(x.Versions))
	}
	for _, v := range x.Versions { // services keep to each of them
		a := apply(1)
		a.App.Metadata.Name = "keeps-" + v.ID
		a.App.Spec.Services[0].Secrets = []spec.SecretUse{{Name: "db", Version: v.Number}}
		if fx, _ := s.c.Handle(s.now, a); fx.Err != nil {
			t.Fatal(fx.Err)
		}
	}
	if fx := put(5); fx.Err == nil || skerry.AsError(fx.Err).Code != skerry.CodeQuota || len(fx.Writes) > 0 {
		t.Errorf("what is in use was taken away: %v", fx.Err)
	}
}

// Nor by many runs of a large application.
func TestRecordsOfManyRuns(t *testing.T) {
	a := &App{Runs: map[string][]*Run{}}
	for i := range spec.MaxServices {
		s := spec.ServiceSpec{Name: fmt.Sprint("s", i), Labels: map[string]string{"x": strings.Repeat("x", 4<<10)}}
		a.Manifest.Spec.Services = append(a.Manifest.Spec.Services, s)
		for n := range maxRuns {
			r := &Run{ID: fmt.Sprint(s.Name, "-", n), Revision: "0123456789ab", Result: "Failed", Reason: strings.Repeat("x", 100)}
			if n == maxRuns-1 {
				r.Result = ""
			}
			a.Runs[s.Name] = append(a.Runs[s.Name], r)
		}
	}
	if n := len(fitApp(a)); n > store.MaxValue {
		t.Errorf("%d bytes", n)
	}
	for name, list := range a.Runs {
		if len(list) == 0 || list[len(list)-1].Result != "" {
			t.Fatalf("%s: the run that goes on is forgotten", name)
		}
	}
}
