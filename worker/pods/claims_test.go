package pods

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
	"skerry.dev/skerry/worker/pods/podstest"
)

const withData = `{"name":"web","image":"x","volumes":[{"name":"data","local":{"size":"8Mi"}}],"mounts":[{"volume":"data","path":"/data"}]}`

// Names of claims are fit for Kubernetes whatever those of services and volumes are, and no two volumes have one.
func TestNamesOfClaims(t *testing.T) {
	style, seen := &Style{Site: "s"}, map[string]string{}
	long := strings.Repeat("a", skerry.MaxNameLength)
	for _, of := range []string{"vol/default/shop/web/0:data", "vol/default/shop/web/1:data", "vol/default/shop/web/0:log",
		"vol/other/shop/web/0:data",
		"vol/default/" + long + "/" + long + "/10000:" + long, "vol/default/shop/web-0/0:data"} {
		one, ok := spec.ParseVolumeKey(of)
		if !ok {
			t.Fatalf("%s is no claim", of)
		}
		for _, worker := range []string{"n1", "n2"} {
			name := style.claimName(worker, one)
			if len(name) > 63 || !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(name) {
				t.Errorf("the claim of %s is called %s, which is no name", of, name)
			}
			if before := seen[name]; before != "" {
				t.Errorf("%s and %s on %s have the same claim %s", before, of, worker, name)
			}
			seen[name] = of + " on " + worker
		}
	}
	for name, want := range map[string]string{"data": "v-data", long[:61]: "v-" + long[:61]} {
		if got := volumeName(name); got != want {
			t.Errorf("volumeName(%s) = %s, want %s", name, got, want)
		}
	}
	if one, other := volumeName(long), volumeName(long[:62]+"b"); len(one) > 63 || one == other {
		t.Errorf("volumes with long names are called %s and %s, want two of at most 63 bytes", one, other)
	}
}

// A claim asks for what the volume has, else for what the container may have of storage; without both there is none.
func TestSizesOfClaims(t *testing.T) {
	style := &Style{Namespace: "skerry", Site: "s", StorageClass: "fast"}
	for text, want := range map[string]string{
		`"volumes":[{"name":"d","local":{"size":"8Mi"}}]`:                            "8388608",
		`"volumes":[{"name":"d","local":{"size":9223372036854775807}}]`:              "9223372036854775807",
		`"volumes":[{"name":"d","local":{}}],"resources":{"storage":"1Gi"}`:          "1073741824",
		`"volumes":[{"name":"d","local":{}}]`:                                        "4294967296", // that of the level
		`"volumes":[{"name":"d","local":{"size":0}}],"security":{"privileged":true}`: "",
	} {
		a := assignment(t, `{"name":"web","image":"x",`+text+`}`)
		if a.Spec.Security.Privileged {
			a.Level = spec.LevelPrivileged
		}
		made, err := style.claim(a, &a.Spec.Volumes[0], "n1")
		if _, never := errors.AsType[*Unsupported](err); want == "" && never {
			continue
		}
		if err != nil || string(made.Spec.Resources.Requests["storage"]) != want || made.Spec.Class != "fast" {
			t.Errorf("of %s the claim is %+v (%v), want one of class fast with %s", text, made, err, want)
		}
	}
}

// A claim is made once and found again; it grows, and never shrinks. One of that name which is not ours is in the way; one that is being
// deleted or is lost cannot be used.
func TestClaimIsFoundAgain(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned := alone(t, server.URL), assignment(t, withData)
	admin := podstest.Kubelet{Server: server.URL}
	admin.Do("POST", "/apis/storage.k8s.io/v1/storageclasses", podstest.Object{"metadata": podstest.Object{"name": "shelf",
		"annotations": podstest.Object{defaultClass: "true"}}, "allowVolumeExpansion": true}, nil)
	path := claimPath("skerry", worker.fleet.opt.Style.claimName("n1", volumeClaim(assigned, "data")))
	prepared := func() core.Prepared { return worker.prepare(t.Context(), core.Prepare{A: *assigned}) }
	for _, step := range []struct {
		size skerry.Bytes
		want string
	}{{8 << 20, "8388608"}, {8 << 20, "8388608"}, {16 << 20, "16777216"}, {8 << 20, "16777216"}} {
		assigned.Spec.Volumes[0].Local.Size = step.size
		var have podstest.Object
		if done := prepared(); done.Err != "" {
			t.Fatalf("prepare with a volume of %d = %+v, want no error", step.size, done)
		}
		admin.Do("PATCH", path, podstest.Object{"status": podstest.Object{"phase": "Bound"}}, nil)
		if admin.Do("GET", path, nil, &have); podstest.Text(have, "spec", "resources", "requests", "storage") != step.want {
			t.Errorf("with a volume of %d the claim is %v, want one of %s", step.size, have["spec"], step.want)
		}
	}
	for name, c := range map[string]struct {
		change    podstest.Object
		want      string
		permanent bool
	}{
		"lost": {podstest.Object{"status": podstest.Object{"phase": "Lost"},
			"spec": podstest.Object{"volumeName": "pv1"}}, "has lost its volume pv1", false},
		"not ours": {podstest.Object{"metadata": podstest.Object{"annotations": podstest.Object{volumeNote: "vol/a/b/c/0:data"}}},
			"is not ours, and in the way", true},
	} {
		admin.Do("PATCH", path, c.change, nil)
		if done := prepared(); !strings.Contains(done.Err, c.want) || !strings.HasPrefix(done.Err, "volume data: its claim ") ||
			done.Permanent != c.permanent {
			t.Errorf("%s: prepare = %+v, want %q, for good: %v", name, done, c.want, c.permanent)
		}
		admin.Do("PATCH", path, podstest.Object{"status": podstest.Object{"phase": "Bound"}, "metadata": podstest.Object{
			"annotations": podstest.Object{volumeNote: volumeClaim(assigned, "data").Key()}}}, nil)
	}
	admin.Do("DELETE", path, podstest.Object{}, nil)
	if done := prepared(); !strings.Contains(done.Err, "is being deleted") || done.Permanent {
		t.Errorf("while the claim is being deleted prepare = %+v, want that, for now", done)
	}
}

// What Kubernetes refuses is told: a quota, a webhook, a class that cannot grow.
func TestClaimThatIsRefused(t *testing.T) {
	server := podstest.NewServer(t)
	worker := alone(t, server.URL)
	server.Fault(func(to http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims") {
			podstest.Refuse(to, 403, "Forbidden", "exceeded quota: small, requested: requests.storage=8Mi")
			return true
		}
		return false
	})
	done := worker.prepare(t.Context(), core.Prepare{A: *assignment(t, withData)})
	if !done.Permanent || !strings.Contains(done.Err, "volume data: Kubernetes refuses: exceeded quota: small") {
		t.Errorf("prepare where a quota refuses = %+v, want that told, for good", done)
	}
	server.Fault(nil)
	a := assignment(t, withData)
	if done := worker.prepare(t.Context(), core.Prepare{A: *a}); done.Err != "" {
		t.Fatalf("prepare = %+v, want no error", done)
	}
	shelf := podstest.Kubelet{Server: server.URL}
	shelf.Do("PATCH", claimPath("skerry", worker.fleet.opt.Style.claimName("n1", volumeClaim(a, "data"))),
		podstest.Object{"status": podstest.Object{"phase": "Bound"}}, nil)
	a.Spec.Volumes[0].Local.Size *= 2
	if done := worker.prepare(t.Context(), core.Prepare{A: *a}); !strings.Contains(done.Err, "does not grow from 8388608") &&
		!strings.Contains(done.Err, "does not grow from 8Mi") {
		t.Errorf("prepare with a volume that cannot grow = %+v, want that told", done)
	}
}

// Of the volumes of replicas go those that are meant, and no others; while Kubernetes keeps one, it is not gone.
func TestVolumesAreRemoved(t *testing.T) {
	server := podstest.NewServer(t)
	worker, told := alone(t, server.URL), &heard{}
	live(t, worker, told)
	assigned := assignment(t, strings.Replace(withData, `"volumes":[`, `"volumes":[{"name":"log","local":{"size":"8Mi"}},`, 1))
	second := *assigned
	second.Ordinal = 1
	for _, of := range []*spec.Assignment{assigned, &second} {
		if err := (claims{worker}).makeClaims(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	shelf := &podstest.Provisioner{Kubelet: podstest.Kubelet{Server: server.URL}, Class: "", Dir: t.TempDir()}
	names := func() (out []string) {
		for _, c := range shelf.Claims() {
			out = append(out, podstest.Text(c, "metadata", "annotations", volumeNote))
		}
		return out
	}
	whole := spec.VolumeClaim{Service: assigned.Service}
	for _, c := range []struct {
		of   spec.VolumeClaim
		left int
	}{{volumeClaim(assigned, "log"), 3}, {whole, 2}, {whole, 2}} {
		let := make(chan struct{})
		go func() { // Kubernetes lets go of them
			defer close(let)
			for len(names()) > c.left {
				for _, claim := range shelf.Claims() {
					if podstest.Text(claim, "metadata", "deletionTimestamp") != "" {
						shelf.Do("PATCH", claimPath("skerry", podstest.Text(claim, "metadata", "name")),
							podstest.Object{"metadata": podstest.Object{"finalizers": nil}}, nil)
					}
				}
			}
		}()
		if err := (claims{worker}).deleteClaims(t.Context(), c.of); err != nil {
			t.Errorf("the removal of %s = %v, want nil", c.of, err)
		}
		if <-let; len(names()) != c.left {
			t.Errorf("when %s is removed there are %v, want %d", c.of, names(), c.left)
		}
	}
}

// A claim that has no volume yet cannot grow: it is made anew.
func TestPendingClaimIsMadeAgain(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned := alone(t, server.URL), assignment(t, withData)
	admin := podstest.Kubelet{Server: server.URL}
	path := claimPath("skerry", worker.fleet.opt.Style.claimName("n1", volumeClaim(assigned, "data")))
	prepared := func(want string) {
		t.Helper()
		if done := worker.prepare(t.Context(), core.Prepare{A: *assigned}); (done.Err == "") != (want == "") || done.Permanent ||
			!strings.Contains(done.Err, want) {
			t.Fatalf("prepare = %+v, want %q, for now", done, want)
		}
	}
	prepared("")
	assigned.Spec.Volumes[0].Local.Size *= 2
	prepared("is made again")
	admin.Do("PATCH", path, podstest.Object{"metadata": podstest.Object{"finalizers": nil}}, nil)
	prepared("")
	var have podstest.Object
	if admin.Do("GET", path, nil, &have); podstest.Text(have, "spec", "resources", "requests", "storage") != "16777216" {
		t.Errorf("the claim is %v, want one of 16Mi", have)
	}
}

// What a pod waits for is asked ever more seldom while the answer is the same: each question has the API server search all events.
func TestWaitsAreAskedSeldom(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned, told := alone(t, server.URL), assignment(t, withData), &heard{}
	live(t, worker, told)
	if err := (claims{worker}).makeClaims(t.Context(), assigned); err != nil {
		t.Fatal(err)
	}
	pod, err := worker.fleet.opt.Style.pod(assigned, 1, nodeOf(t, aNode), "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	waits, total := waiter{w: worker, start: &core.StartContainer{A: *assigned, Attempt: 1}}, time.Duration(0)
	for range 6 {
		if why := waits.look(t.Context(), pod); why != "" || !waits.unbound {
			t.Errorf("it will not start because of %q, want it to wait", why)
		}
		_ = waits.look(t.Context(), pod) // too early
		total += time.Until(waits.next).Round(time.Second)
		waits.next = time.Time{}
	}
	if asked := server.Count("GET events"); asked != 6 || total != 90*time.Second {
		t.Errorf("it was asked %d times with %s between, want 6 with 90s", asked, total)
	}
}

// leave has Kubernetes let go of claims that are deleted, until the test ends; again is made of each that goes, if it is not nil.
func leave(t *testing.T, url string, again *Claim) {
	ctx, shelf := t.Context(), &podstest.Provisioner{Kubelet: podstest.Kubelet{Server: url}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, claim := range shelf.Claims() {
				path := claimPath("skerry", podstest.Text(claim, "metadata", "name"))
				if podstest.Text(claim, "metadata", "deletionTimestamp") != "" {
					shelf.Do("PATCH", path, podstest.Object{"metadata": podstest.Object{"finalizers": nil}}, nil)
					if again != nil {
						shelf.Do("POST", collection(path), again, nil)
					}
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-done })
}

// A claim that is made while that before it is being removed is another's by then, and stays.
func TestRemovalLeavesTheNextClaim(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned := alone(t, server.URL), assignment(t, withData)
	asked, err := worker.fleet.opt.Style.claim(assigned, &assigned.Spec.Volumes[0], "n1")
	if err == nil {
		err = claims{worker}.makeClaims(t.Context(), assigned)
	}
	if err != nil {
		t.Fatal(err)
	}
	leave(t, server.URL, asked)
	if err := (claims{worker}).deleteClaims(t.Context(), volumeClaim(assigned, "data")); err != nil {
		t.Errorf("the removal = %v, want nil", err)
	}
	time.Sleep(50 * time.Millisecond)
	if deleted := server.Count("DELETE persistentvolumeclaims"); deleted != 1 {
		t.Errorf("%d claims were deleted, want the first alone", deleted)
	}
}

// What is prepared while a volume is being removed waits for that: it would be given what is about to go.
func TestPreparationWaitsForRemoval(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned, told := alone(t, server.URL), assignment(t, withData), &heard{}
	live(t, worker, told)
	if err := (claims{worker}).makeClaims(t.Context(), assigned); err != nil {
		t.Fatal(err)
	}
	leave(t, server.URL, nil)
	held := make(chan struct{})
	server.Fault(func(to http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/skerry/persistentvolumeclaims" {
			<-held
		}
		return false
	})
	whole := spec.VolumeClaim{Service: assigned.Service}
	worker.act(core.RemoveVolumes{Claim: whole})
	made := make(chan error, 1)
	go func() { made <- claims{worker}.makeClaims(t.Context(), assigned) }()
	select {
	case err := <-made:
		close(held)
		t.Fatalf("before the volume is removed it was taken for the next instance (%v), want that to wait", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(held)
	told.await(t, "that the volumes are removed", func(msg any) bool { return msg == core.VolumesRemoved{Claim: whole} })
	if err := <-made; err != nil {
		t.Errorf("after the removal the claim is not made: %v", err)
	}
	if made := server.Count("POST persistentvolumeclaims"); made != 2 || len(worker.removing) != 0 {
		t.Errorf("%d claims were made, and %d removals are under way; want 2 and 0", made, len(worker.removing))
	}
}

// A claim that is not known to be ours any more is neither deleted nor said to be.
func TestRemovalOfClaimWithoutLabels(t *testing.T) {
	server := podstest.NewServer(t)
	worker, assigned := alone(t, server.URL), assignment(t, withData)
	if err := (claims{worker}).makeClaims(t.Context(), assigned); err != nil {
		t.Fatal(err)
	}
	admin, of := podstest.Kubelet{Server: server.URL}, volumeClaim(assigned, "data")
	admin.Do("PATCH", claimPath("skerry", worker.fleet.opt.Style.claimName("n1", of)),
		podstest.Object{"metadata": podstest.Object{"labels": nil}}, nil)
	err := claims{worker}.deleteClaims(t.Context(), of)
	if deleted := server.Count("DELETE persistentvolumeclaims"); err == nil || deleted != 0 {
		t.Errorf("the removal of a claim without labels = %v, with %d deleted; want an error and none", err, deleted)
	}
}

// A claim that somebody else deletes is told of once, one that this program deletes is not.
func TestDeletedClaimIsTold(t *testing.T) {
	worker, told := alone(t, "http://127.0.0.1:1"), &heard{}
	live(t, worker, told)
	f := worker.fleet
	f.workers["n1"] = worker
	read := func(volume, uid, deleted string) *Claim { return readClaim(t, f, volume, uid, deleted) }
	const then = "2026-01-01T00:00:00Z"
	all := map[string]*Claim{"a": read("a", "ua", ""), "b": read("b", "ub", ""), "c": read("c", "uc", ""), "d": read("d", "ud", then),
		"e": read("e", "ue", ""), "g": read("g", "ug", "")}
	f.resetClaims(all)
	f.deleting("ub", true)
	f.setClaim("a", read("a", "ua", then), false)
	f.setClaim("a", read("a", "ua", then), true)
	f.setClaim("b", read("b", "ub", then), false)
	f.setClaim("b", read("b", "ub", then), true)
	f.setClaim("d", read("d", "ud", then), true)
	bare := read("g", "ug", "")
	bare.Metadata.Labels, bare.Metadata.Annotations = nil, nil
	f.setClaim("g", bare, false)
	f.setClaim("g", &Claim{Metadata: Meta{Name: bare.Metadata.Name, UID: "ug"}}, true)
	f.resetClaims(map[string]*Claim{"e": read("e", "ue2", "")}) // c and e went while nobody looked, and another e was made
	if got := deletionsTold(t, worker, told); got != "a c e g" {
		t.Errorf("told of are the deletions of %s, want a, c, e and g", got)
	}
}

// readClaim is the claim of a volume on n1 as Kubernetes shows it.
func readClaim(t *testing.T, f *Fleet, volume, uid, deleted string) *Claim {
	t.Helper()
	made, err := f.opt.Style.claim(assignment(t, withData), &spec.Volume{Name: volume, Local: &spec.LocalVolume{Size: 1}}, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if made.Metadata.UID = uid; deleted != "" {
		if err := json.Unmarshal([]byte(`"`+deleted+`"`), &made.Metadata.DeletionTimestamp); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// deletionsTold are the volumes of which the core was told that somebody deletes them.
func deletionsTold(t *testing.T, worker *Worker, told *heard) string {
	t.Helper()
	worker.post(core.Quiet{ID: "last"})
	told.await(t, "the last message", func(msg any) bool { return msg == core.Quiet{ID: "last"} })
	var got []string
	for _, msg := range told.told {
		if m, ok := msg.(core.VolumeDeleted); ok {
			got = append(got, m.Claim.Volume)
		}
	}
	slices.Sort(got)
	return strings.Join(got, " ")
}

// A claim that somebody began to delete while this program was away is told of, too, once the claims are listed.
func TestClaimDeletedMeanwhileIsTold(t *testing.T) {
	worker, told := alone(t, "http://127.0.0.1:1"), &heard{}
	live(t, worker, told)
	f := worker.fleet
	f.workers["n1"] = worker
	const then = "2026-01-01T00:00:00Z"
	f.deleting("uc", true)
	f.resetClaims(map[string]*Claim{"a": readClaim(t, f, "a", "ua", ""), "b": readClaim(t, f, "b", "ub", then),
		"c": readClaim(t, f, "c", "uc", then)})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	claims{worker}.deletedMeanwhile(gone) // nobody has listed them
	close(f.claims.synced)
	claims{worker}.deletedMeanwhile(t.Context())
	if got := deletionsTold(t, worker, told); got != "b" {
		t.Errorf("told of are the deletions of %q, want b", got)
	}
}

// A node offers local volumes where there is a class for them, and says why it does not.
func TestLocalVolumesAreOfferedWhereThereIsAClass(t *testing.T) {
	for name, c := range map[string]struct{ class, list, want string }{
		"the default": {"", `{"items":[{"metadata":{"name":"a"}},
{"metadata":{"name":"b","annotations":{"` + defaultClass + `":"true"}}}]}`, ""},
		"no default":     {"", `{"items":[{"metadata":{"name":"a"}}]}`, "Kubernetes has no default storage class"},
		"one by name":    {"a", `{"items":[{"metadata":{"name":"a"}}]}`, ""},
		"none by name":   {"fast", `{"items":[{"metadata":{"name":"a"}}]}`, "Kubernetes has no storage class fast"},
		"not to be seen": {"", "", "Kubernetes refuses: storageclasses is forbidden (Forbidden, status 403)"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := alone(t, answering(t, func(to http.ResponseWriter, _ *http.Request) {
				if c.list == "" {
					podstest.Refuse(to, 403, "Forbidden", "storageclasses is forbidden")
					return
				}
				_, _ = to.Write([]byte(c.list))
			}))
			worker.fleet.opt.Style.StorageClass = c.class
			worker.fleet.lookForClass(t.Context())
			why := worker.fleet.noVolumes()
			told := facts(nodeOf(t, aNode), nil, "v1", "", why).Runtimes[0]
			offered := strings.Contains(strings.Join(told.Abilities, " "), "localVolumes")
			if why != c.want || offered != (c.want == "") || !strings.Contains(told.Cause, c.want) {
				t.Errorf("there are no local volumes because of %q, and the node says %+v; want %q", why, told, c.want)
			}
		})
	}
	worker := alone(t, "http://127.0.0.1:1")
	worker.fleet.noClass = ""
	worker.fleet.lookForClass(t.Context())
	if why := worker.fleet.noVolumes(); why != "" {
		t.Errorf("while the API server is away there are no local volumes because of %q, want them as before", why)
	}
}
