package pods

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Local volumes are claims (PersistentVolumeClaims) of a storage class, one for each volume of a replica on a node. Their names follow from
// whose they are. They are made before the first pod that has them, and deleted when the core says that the volume is to go, never
// otherwise: neither with a pod nor because no record has them.

// volumeNote says exactly which volume a claim is, as a key of spec.VolumeClaim.
const volumeNote = "skerry.dev/volume"

// Claim is a PersistentVolumeClaim.
type Claim struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   Meta      `json:"metadata"`
	Spec       ClaimSpec `json:"spec"`
	Status     struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitzero"`
}

// ClaimSpec is what a claim asks for.
type ClaimSpec struct {
	AccessModes []string     `json:"accessModes,omitempty"`
	Resources   podResources `json:"resources,omitzero"`
	Class       string       `json:"storageClassName,omitempty"` // empty: the default one
	VolumeName  string       `json:"volumeName,omitempty"`
}

// claims are those of a worker.
type claims struct{ *Worker }

// volumeGroup owns what is in claims, so that a container may write there whatever user it has.
const volumeGroup = 65532

// volumeClaim names a volume of an assignment.
func volumeClaim(a *spec.Assignment, name string) spec.VolumeClaim {
	return spec.VolumeClaim{Service: a.Service, Ordinal: a.Ordinal, Volume: name}
}

// claimName names the claim of a volume on a worker. It is as good as unique: what a claim has is not to become another's.
func (st *Style) claimName(worker string, of spec.VolumeClaim) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{st.Site, worker, of.Key()}, "\x00")))
	return short(fmt.Sprintf("%s-%d-%s", of.Service.Service, of.Ordinal, of.Volume)) + "-" + hex.EncodeToString(sum[:10])
}

// claim describes the claim of a volume. One without a size gets what the container may have of storage, as it would elsewhere.
func (st *Style) claim(assigned *spec.Assignment, volume *spec.Volume, worker string) (*Claim, error) {
	of := volumeClaim(assigned, volume.Name)
	size := volume.Local.Size
	if size == 0 {
		size = assigned.Level.Enforced(assigned.Spec.Resources, spec.RuntimeOCI).Storage
	}
	if size <= 0 {
		return nil, &Unsupported{"volume " + volume.Name, "a claim needs a size, and neither the volume nor resources.storage has one"}
	}
	made := &Claim{APIVersion: "v1", Kind: "PersistentVolumeClaim", Metadata: st.metadata(st.claimName(worker, of), worker, assigned)}
	made.Metadata.Annotations = map[string]string{volumeNote: of.Key()}
	made.Spec = ClaimSpec{AccessModes: []string{"ReadWriteOnce"}, Class: st.StorageClass,
		Resources: podResources{Requests: map[string]text{"storage": text(strconv.FormatInt(int64(size), 10))}}}
	return made, nil
}

func claimPath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/persistentvolumeclaims/" + url.PathEscape(name)
}

// ownClaim reports whether a claim is one of this site.
func (f *Fleet) ownClaim(c *Claim) bool {
	labels := c.Metadata.Labels
	return labels[managedLabel] == managedBy && labels[siteLabel] == labelValue(f.opt.Style.Site) && c.Metadata.Annotations[volumeNote] != ""
}

// makeClaims makes the claims of an assignment, or finds them made; a volume that has grown in the manifest grows.
func (w claims) makeClaims(ctx context.Context, assigned *spec.Assignment) error {
	for at := range assigned.Spec.Volumes {
		volume := &assigned.Spec.Volumes[at]
		if volume.Local == nil {
			continue
		}
		asked, err := w.fleet.opt.Style.claim(assigned, volume, w.name)
		if err != nil {
			return err
		}
		worth := func(err error) bool {
			_, is := errors.AsType[*claimError](err) // the core asks again
			return !is && passing(err)
		}
		if err := w.awaitRemoval(ctx, volumeClaim(assigned, volume.Name)); err != nil {
			return err
		}
		err = retry(ctx, w.log, "the claim of volume "+volume.Name, worth, func() error { return w.makeClaim(ctx, asked) })
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

func (w claims) makeClaim(ctx context.Context, asked *Claim) error {
	client, name := w.fleet.opt.Client, asked.Metadata.Name
	path, have := claimPath(asked.Metadata.Namespace, name), Claim{}
	err := client.do(ctx, http.MethodGet, path, nil, nil, &have)
	if absent(err) {
		if err = client.do(ctx, http.MethodPost, collection(path), nil, asked, nil); !exists(err) {
			return err
		}
		err = client.do(ctx, http.MethodGet, path, nil, nil, &have)
	}
	switch {
	case err != nil:
		return err
	case !w.fleet.ownClaim(&have), have.Metadata.Name != name,
		have.Metadata.Annotations[volumeNote] != asked.Metadata.Annotations[volumeNote]:
		return &claimError{name, "is not ours, and in the way", true}
	case !have.Metadata.DeletionTimestamp.IsZero():
		return &claimError{name, "is being deleted in Kubernetes", false}
	case have.Status.Phase == lostPhase:
		return &claimError{name, "has lost its volume " + clean(have.Spec.VolumeName, 100), false}
	}
	is, _ := readQuantity(have.Spec.Resources.Requests["storage"])
	if to, _ := readQuantity(asked.Spec.Resources.Requests["storage"]); to.Cmp(is) > 0 {
		if have.Status.Phase == pendingPhase && have.Spec.VolumeName == "" { // while that is so there is nothing in it
			if err := w.deleteClaim(ctx, &have.Metadata, have.Metadata.ResourceVersion); err != nil {
				return fmt.Errorf("its claim %s is too small: %w", name, err)
			}
			return &claimError{name, "is made again: Kubernetes grows none that has no volume yet", false}
		}
		change := map[string]any{"spec": map[string]any{"resources": asked.Spec.Resources}}
		if err := client.merge(ctx, path, change); err != nil {
			return fmt.Errorf("its claim %s does not grow from %s: %w", name, is.String(), err)
		}
	}
	return nil
}

// Phases of claims.
const (
	pendingPhase = "Pending"
	lostPhase    = "Lost"
)

// claimError is a claim that cannot be used as it is.
type claimError struct {
	name, why string
	lasting   bool
}

func (e *claimError) Error() string { return "its claim " + e.name + " " + e.why }

// removeVolumes deletes the claims of a volume, or of all of a replica, and answers when they are gone.
func (w claims) removeVolumes(ctx context.Context, of spec.VolumeClaim) {
	done := core.VolumesRemoved{Claim: of}
	tctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	err := w.deleteClaims(tctx, of)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		done.Err = err.Error()
	}
	w.post(done)
}

// deleteClaims deletes the claims that there are of a volume, or of all of a replica, and waits until they are gone. Others that are made
// meanwhile stay.
func (w claims) deleteClaims(ctx context.Context, of spec.VolumeClaim) error {
	list, err := w.claimsOf(ctx, of)
	if err != nil {
		return err
	}
	for i := range list {
		if err := w.deleteClaim(ctx, &list[i].Metadata, ""); err != nil {
			return err
		}
	}
	for i := range list {
		was := &list[i].Metadata
		for wait := time.Duration(0); ; {
			var have Claim
			err := w.fleet.opt.Client.do(ctx, http.MethodGet, claimPath(w.fleet.opt.Style.Namespace, was.Name), nil, nil, &have)
			if absent(err) || err == nil && have.Metadata.UID != was.UID {
				break
			}
			if err == nil {
				have.Metadata.Name = was.Name // without it the path would be that of all
				err = w.deleteClaim(ctx, &have.Metadata, "")
			}
			if err != nil {
				return err
			}
			if !pause(ctx, &wait, nil) {
				return &claimError{was.Name, "is being deleted in Kubernetes, and not gone yet", false}
			}
		}
	}
	return nil
}

// deleteClaim asks for the end of a claim, if it has a version as long as it has that, unless that was asked before.
func (w claims) deleteClaim(ctx context.Context, meta *Meta, version string) error {
	if !meta.DeletionTimestamp.IsZero() {
		return nil
	}
	w.fleet.deleting(meta.UID, true)
	only := map[string]string{"uid": meta.UID}
	if version != "" {
		only["resourceVersion"] = version
	}
	err := w.fleet.opt.Client.do(ctx, http.MethodDelete, claimPath(w.fleet.opt.Style.Namespace, meta.Name), nil,
		map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": only}, nil)
	if absent(err) || status(err) == http.StatusConflict {
		return nil
	}
	if err != nil && !passing(err) {
		w.fleet.deleting(meta.UID, false)
	}
	return err
}

// claimsOf lists the claims of a volume, or of all of a replica, on this worker. It does not go by labels, which somebody may have taken
// away: what is not found counts as removed.
func (w claims) claimsOf(ctx context.Context, of spec.VolumeClaim) (out []Claim, err error) {
	style, query := &w.fleet.opt.Style, url.Values{"limit": {strconv.Itoa(pageSize)}}
	for range pagesMost {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []Claim `json:"items"`
		}
		if err := w.fleet.opt.Client.do(ctx, http.MethodGet, collection(claimPath(style.Namespace, "")), query, nil, &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			have := &page.Items[i]
			one, ok := spec.ParseVolumeKey(have.Metadata.Annotations[volumeNote])
			if !ok || one != of && one.Whole() != of || have.Metadata.Name != style.claimName(w.name, one) {
				continue
			}
			if !w.fleet.ownClaim(have) {
				return nil, &claimError{have.Metadata.Name, "has lost the labels that say it is ours", false}
			}
			out = append(out, *have)
		}
		if page.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return nil, errors.New("the list of claims does not end")
}

// removal notes that volumes are being removed, until over is called.
func (w claims) removal(of spec.VolumeClaim) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := make(chan struct{})
	w.removing[of] = done
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if close(done); w.removing[of] == done {
			delete(w.removing, of)
		}
	}
}

// awaitRemoval waits while a volume is being removed: what an instance is given meanwhile would go, too.
func (w claims) awaitRemoval(ctx context.Context, of spec.VolumeClaim) error {
	for {
		w.mu.Lock()
		under := cmp.Or(w.removing[of], w.removing[of.Whole()])
		w.mu.Unlock()
		if under == nil {
			return nil
		}
		select {
		case <-under:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// claimsIn are the names of the claims that a pod has.
func claimsIn(pod *Pod) (out []string) {
	for _, v := range pod.Spec.Volumes {
		if v.Claim != nil {
			out = append(out, v.Claim.Name)
		}
	}
	return out
}

// unmounted are the reasons of events of a pod that waits for its volumes on its node.
var unmounted = []string{"FailedMount", "FailedAttachVolume", "FailedMapVolume"}

// awaited says what a pod that has not started waits for because of its volumes; empty: nothing that is known. It is hopeless if there will
// be no such volume, and unbound while Kubernetes has yet to make one.
func (w claims) awaited(ctx context.Context, pod *Pod) (why string, hopeless, unbound bool) {
	client, namespace := w.fleet.opt.Client, w.fleet.opt.Style.Namespace
	last := func(uid string, of func(Event) bool) string {
		list, _ := client.warnings(ctx, namespace, uid)
		for _, event := range slices.Backward(list) {
			if of(event) {
				return clean(event.Reason, 60) + ": " + clean(event.Message, maxReason)
			}
		}
		return ""
	}
	for _, name := range claimsIn(pod) {
		var have Claim
		err := client.do(ctx, http.MethodGet, claimPath(namespace, name), nil, nil, &have)
		switch {
		case absent(err):
			return "its claim " + name + " was deleted in Kubernetes", true, false
		case err != nil:
			return "", false, false
		case !have.Metadata.DeletionTimestamp.IsZero():
			return "its claim " + name + " is being deleted in Kubernetes", true, false
		case have.Status.Phase == lostPhase:
			return "its claim " + name + " has lost its volume " + clean(have.Spec.VolumeName, 100), true, false
		case have.Status.Phase == pendingPhase:
			text := last(have.Metadata.UID, func(Event) bool { return true })
			return clean("it waits for its claim "+name+", which is pending: "+cmp.Or(text, "there is no volume for it yet"), maxReason), false, true
		}
	}
	if len(claimsIn(pod)) > 0 && pod.Spec.NodeName != "" {
		if text := last(pod.Metadata.UID, func(e Event) bool { return slices.Contains(unmounted, e.Reason) }); text != "" {
			return clean("it waits for its volumes: "+text, maxReason), false, false
		}
	}
	return "", false, false
}

// Waits before it is asked again what a pod waits for, the longer the more often the answer was the same.
const (
	awaitedFirst = 2 * time.Second
	awaitedLast  = 30 * time.Second
)

// waiter tells the core what a pod waits for because of its volumes.
type waiter struct {
	w     *Worker
	start *core.StartContainer
	next  time.Time     // when to ask
	wait  time.Duration // before that
	told  string
	// unbound: the last answer was that Kubernetes has yet to make a volume.
	unbound bool
}

// look gives why the pod will not start; empty: it may.
func (a *waiter) look(ctx context.Context, pod *Pod) string {
	if len(claimsIn(pod)) == 0 || time.Now().Before(a.next) {
		return ""
	}
	why, hopeless, unbound := claims{a.w}.awaited(ctx, pod)
	if a.unbound = unbound; hopeless {
		return why
	}
	a.wait = min(max(2*a.wait, awaitedFirst), awaitedLast)
	if why != a.told {
		a.told, a.wait = why, awaitedFirst
		a.w.post(core.Waits{ID: a.start.A.ID, Attempt: a.start.Attempt, Text: why})
	}
	a.next = time.Now().Add(a.wait)
	return ""
}

// classesEvery is how often storage classes are looked at.
const classesEvery = time.Minute

// class is a StorageClass.
type class struct {
	Metadata Meta `json:"metadata"`
}

// defaultClass is the annotation of the class that claims get which name none.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// watchClasses looks now and then whether there is a storage class for local volumes, until ctx ends.
func (f *Fleet) watchClasses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(classesEvery):
		}
		f.lookForClass(ctx)
	}
}

// lookForClass notes whether there is a storage class for local volumes. While nobody answers it is as it was.
func (f *Fleet) lookForClass(ctx context.Context) {
	var page struct {
		Items []class `json:"items"`
	}
	err := f.opt.Client.do(ctx, http.MethodGet, "/apis/storage.k8s.io/v1/storageclasses", nil, nil, &page)
	f.mu.Lock()
	was := f.noClass
	switch name := f.opt.Style.StorageClass; {
	case err != nil && passing(err) && was == "":
	case err != nil:
		f.noClass = err.Error()
	case slices.ContainsFunc(page.Items, func(c class) bool {
		return c.Metadata.Name == name || name == "" && c.Metadata.Annotations[defaultClass] == "true"
	}):
		f.noClass = ""
	case name == "":
		f.noClass = "Kubernetes has no default storage class"
	default:
		f.noClass = "Kubernetes has no storage class " + name
	}
	is := f.noClass
	f.mu.Unlock()
	if is == was {
		return
	}
	f.opt.Log.Info("whether local volumes are offered has changed", "offered", is == "", "why", is)
	f.all()
}

// unlooked is why there are no local volumes before anybody has looked.
const unlooked = "it is not known yet whether there is a storage class"

// noVolumes says why local volumes are not offered; empty: they are.
func (f *Fleet) noVolumes() string {
	denied := ""
	if err := f.claims.health(); err != nil && !passing(err) {
		denied = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(f.noClass, denied)
}

// deleting notes that a claim is deleted by this program, or that it may not.
func (f *Fleet) deleting(uid string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is {
		f.dropped[uid] = true
	} else {
		delete(f.dropped, uid)
	}
}

// setClaim takes a claim as it is now, or last was.
func (f *Fleet) setClaim(key string, c *Claim, gone bool) {
	f.mu.Lock()
	tell := f.setClaimLocked(key, c, gone)
	f.mu.Unlock()
	tell()
}

// setClaimLocked takes a claim, and gives what has its worker tell, once, that somebody else deletes it.
func (f *Fleet) setClaimLocked(key string, claim *Claim, gone bool) (tell func()) {
	tell = func() {}
	was := f.kept[key]
	if was != nil && was.Metadata.UID != claim.Metadata.UID { // it went, and this one was made, while nobody looked
		tell = f.setClaimLocked(key, was, true)
		f.setClaimLocked(key, claim, gone) // of one that was not known nothing is told
		return tell
	}
	if was != nil { // somebody may have taken away what says whose it is
		claim.Metadata.Labels, claim.Metadata.Annotations = was.Metadata.Labels, was.Metadata.Annotations
	}
	of, ok := spec.ParseVolumeKey(claim.Metadata.Annotations[volumeNote])
	if !ok || !f.ownClaim(claim) {
		return tell
	}
	uid := claim.Metadata.UID
	if gone {
		delete(f.kept, key)
	} else {
		f.kept[key] = claim
	}
	if first := was != nil && was.Metadata.DeletionTimestamp.IsZero(); first && !f.dropped[uid] &&
		(gone || !claim.Metadata.DeletionTimestamp.IsZero()) {
		for _, w := range f.workers {
			if claim.Metadata.Name == f.opt.Style.claimName(w.name, of) && w.role.Load() != nil {
				tell = func() { claims{w}.tellDeleted(claim.Metadata.Name, of) }
			}
		}
	}
	if gone {
		delete(f.dropped, uid)
	}
	return tell
}

// tellDeleted has the core tell that somebody else deletes a claim. Of one that it is about to remove it tells nothing.
func (w claims) tellDeleted(name string, of spec.VolumeClaim) {
	w.post(core.VolumeDeleted{Claim: of, Text: fmt.Sprintf(
		"somebody deletes claim %s in Kubernetes: what is in volume %s is lost when its pod has ended", name, of)})
}

// deletedMeanwhile tells of claims that somebody began to delete before this program was there to see it. Kubernetes keeps those that a pod
// has.
func (w claims) deletedMeanwhile(ctx context.Context) {
	f := w.fleet
	select {
	case <-ctx.Done():
		return
	case <-f.claims.synced:
	}
	f.mu.Lock()
	begun := map[spec.VolumeClaim]string{}
	for _, c := range f.kept {
		of, ok := spec.ParseVolumeKey(c.Metadata.Annotations[volumeNote])
		if ok && c.Metadata.Name == f.opt.Style.claimName(w.name, of) && !c.Metadata.DeletionTimestamp.IsZero() && !f.dropped[c.Metadata.UID] {
			begun[of] = c.Metadata.Name
		}
	}
	f.mu.Unlock()
	for of, name := range begun {
		w.tellDeleted(name, of)
	}
}

func (f *Fleet) resetClaims(all map[string]*Claim) {
	f.mu.Lock()
	var tell []func()
	for key, c := range all {
		tell = append(tell, f.setClaimLocked(key, c, false))
	}
	for key, c := range maps.Clone(f.kept) {
		if all[key] == nil {
			tell = append(tell, f.setClaimLocked(key, c, true))
		}
	}
	f.mu.Unlock()
	for _, each := range tell {
		each()
	}
}

// volumeName names a volume of the manifest in a pod: there are 63 bytes for it.
func volumeName(name string) string {
	if name = "v-" + name; len(name) > skerry.MaxNameLength {
		return name[:skerry.MaxNameLength-markLength-1] + "-" + mark(name)
	}
	return name
}
