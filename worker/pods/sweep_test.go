package pods

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

// Secrets that an earlier life made for instances that no record has are removed; those of others, and of what is known, stay.
func TestSecretsOfNobodyAreRemoved(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	kubelet := podstest.Kubelet{Server: server.URL}
	const secrets = "/api/v1/namespaces/skerry/secrets"
	put := func(id, on string, change func(*secretObject)) {
		t.Helper()
		assigned := assignment(t, `{"name":"web","image":"x"}`)
		assigned.ID = skerry.InstanceID(id)
		made := &secretObject{APIVersion: "v1", Kind: "Secret"}
		made.Metadata = worker.fleet.opt.Style.metadata(filesName(assigned.ID, on), on, assigned)
		if change != nil {
			change(made)
		}
		if code, text := kubelet.Do("POST", secrets, made, nil); code != 200 {
			t.Fatalf("make the secret of %s: %d %s", id, code, text)
		}
	}
	put("lost-1", "n1", nil)
	put("known-1", "n1", nil)
	put("elsewhere-1", "n2", nil)
	put("theirs-1", "n1", func(s *secretObject) { s.Metadata.Labels[siteLabel] = "another" })
	put("copied-1", "n1", func(s *secretObject) { s.Metadata.Name = "somebodys" })
	put("plain-1", "n1", func(s *secretObject) { s.Metadata.Labels = nil })
	for i := range 40 { // more than a page
		put(fmt.Sprintf("lost-%d", i+2), "n1", nil)
	}
	worker.apps["known-1"] = skerry.AppKey{}
	if err := worker.dropSecrets(t.Context()); err != nil {
		t.Fatalf("dropSecrets = %v, want nil", err)
	}
	var list struct {
		Items []secretObject `json:"items"`
	}
	kubelet.Do("GET", secrets, nil, &list)
	got := map[string]bool{}
	for i := range list.Items {
		got[list.Items[i].Metadata.Annotations[instanceNote]] = true
	}
	want := []string{"copied-1", "elsewhere-1", "known-1", "plain-1", "theirs-1"}
	if left := slices.Sorted(maps.Keys(got)); !slices.Equal(left, want) {
		t.Errorf("secrets of %q are left, want of %q", left, want)
	}
}

// A secret that was listed before its instance was prepared again stays, though what is in it is what was in it before, and so does one of
// which the removal comes between the two requests that write it.
func TestSecretThatIsPreparedMeanwhileStays(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	kubelet := podstest.Kubelet{Server: server.URL}
	assigned := assignment(t, `{"name":"web","image":"x"}`)
	path := secretPath("skerry", filesName(assigned.ID, "n1"))
	prepare := func() {
		t.Helper()
		if done := worker.prepare(t.Context(), core.Prepare{A: *assigned}); done.Err != "" {
			t.Fatalf("prepare = %+v, want no error", done)
		}
	}
	listed := func() (listed secretObject) {
		kubelet.Do("GET", path, nil, &listed)
		return listed
	}
	drop := func(listed secretObject) {
		t.Helper()
		delete(worker.apps, assigned.ID) // as it was when this was looked at
		if err := worker.dropSecret(t.Context(), &listed.Metadata); err != nil {
			t.Errorf("dropSecret = %v, want nil", err)
		}
	}
	prepare() // in an earlier life
	before := listed()
	prepare()
	drop(before)
	if code, _ := kubelet.Do("GET", path, nil, nil); code != 200 {
		t.Errorf("a secret that was written meanwhile has status %d, want 200", code)
	}
	server.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			server.Fault(nil)
			drop(listed())
		}
		return false
	})
	prepare()
	if code, _ := kubelet.Do("GET", path, nil, nil); code != 200 {
		t.Errorf("a secret that was removed while it was written has status %d, want 200", code)
	}
}

// A store that has lost its records leaves pods running until the site says what of them is wanted; they keep their files.
func TestSecretOfPodStays(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	kubelet := podstest.Kubelet{Server: server.URL}
	assigned := assignment(t, `{"name":"web","image":"x"}`)
	if done := worker.prepare(t.Context(), core.Prepare{A: *assigned}); done.Err != "" {
		t.Fatalf("prepare = %+v, want no error", done)
	}
	clear(worker.apps)
	pod, err := worker.fleet.opt.Style.pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	worker.fleet.note(pod)
	if err := worker.dropSecrets(t.Context()); err != nil {
		t.Fatalf("dropSecrets = %v, want nil", err)
	}
	if code, _ := kubelet.Do("GET", secretPath("skerry", filesName(assigned.ID, "n1")), nil, nil); code != 200 {
		t.Errorf("the secret of a pod has status %d, want 200", code)
	}
}

// The workers of many nodes begin at once, and do not look for secrets at once.
func TestSweepsFollowEachOther(t *testing.T) {
	var now, most atomic.Int32
	first := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		fmt.Fprint(to, `{"items":[]}`)
	}))
	var all sync.WaitGroup
	for i := range 8 {
		w := newWorker(first.fleet, fmt.Sprint("n", i), fmt.Sprint("n", i))
		all.Go(func() {
			if err := w.dropSecrets(t.Context()); err != nil {
				t.Errorf("dropSecrets = %v, want nil", err)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d workers looked at once, want 1", most.Load())
	}
}
