// Package volumes remembers which worker has the local volumes of a replica. It owns these claims and their records, and keeps room on the
// disk for those that no instance uses. It decides nothing about instances, and never touches a disk. The cluster's core, which alone
// imports it, says where instances are, and places them where their data is. It is pure: no clock, no disk, no socket.
//
//	placed ─► claimed ─ran there─► its data, which stays while the owner says so, or an instance is there ─► removed (tombstone)
//	             └─ moved before it ran: claimed elsewhere, nothing is lost
package volumes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Prefix is that of the keys of the records; apps has claims of its own.
const Prefix = "claimed/"

// Site is what the claims need of the rest of a site.
type Site interface {
	// Keep has a worker keep volumes, of an organisation, and Drop has it remove them.
	Keep(worker string, v spec.VolumeClaim, org string)
	Drop(worker string, v spec.VolumeClaim)
	// KeepSnapshot and DropSnapshot do the same with snapshots. The worker keeps the record of one beside it.
	KeepSnapshot(worker string, id spec.SnapshotID, record []byte)
	DropSnapshot(worker string, id spec.SnapshotID)
	// Reserve takes so much more of a worker's disk, or less.
	Reserve(worker string, size skerry.Bytes)
	// Occupied reports whether an instance on a worker, or one on its way out there, holds the room of the volumes by itself.
	Occupied(v spec.VolumeClaim, worker string) bool
	// Replica reports whether the site has an instance for the volumes, wherever it is.
	Replica(v spec.VolumeClaim) bool
	// Routine gives how the service of an instance, wherever it is, wants the volumes to be copied.
	Routine(v spec.VolumeClaim) Routine
	// Owned reports whether the owner of the application says that the data is to stay.
	Owned(v spec.VolumeClaim) bool
	// Write persists a record with what follows from this step.
	Write(w wire.Write)
}

// Claims are all claims of a site.
type Claims struct {
	site Site
	all  map[spec.VolumeClaim]*claim
	due  bool // one of them may have lost its owner, or its instance
	// snaps are the snapshots at the site; busy are volumes that are being restored, which nobody remembers beyond this life.
	snaps map[spec.SnapshotID]*spec.Snapshot
	busy  map[spec.VolumeClaim]restoring
	// sending are snapshots that are being sent away, which nobody remembers beyond this life either.
	sending map[spec.SnapshotID]bool
	look    time.Time // when to look at schedules; zero: there is none
	// changed: a schedule, or what it has come to, may look different.
	changed bool
}

// claim is a record.
type claim struct {
	spec.VolumeClaim
	Worker string `json:"worker"`
	Ran    bool   `json:"ran,omitempty"`   // an instance ran there, so that there is data
	Owned  bool   `json:"owned,omitempty"` // the owner has told of it: when it no longer does, the data goes
	// Size is what the volumes may take of the disk. It is reserved by itself while no instance does that.
	Size  skerry.Bytes `json:"size,omitempty"`
	Org   string       `json:"org,omitempty"`   // whose data it is; empty: an earlier version did not note that
	Names []string     `json:"names,omitempty"` // of the volumes
	// Sizes are those of several volumes, by name; an earlier version did not note them.
	Sizes map[string]skerry.Bytes `json:"sizes,omitempty"`
	Made  bool                    `json:"made,omitempty"` // out of a snapshot, by hand: nobody else may know of them
	// Found is when a site that had lost its store found them on a worker; zero: it has them kept itself, or somebody has them again.
	Found time.Time `json:"found,omitzero"`
	// Had is what they have of the disk, where that is more than Size: they were larger, or are of a snapshot, and never become smaller. Took
	// is what a snapshot has brought besides into those without a size, until an instance has them, whose own share that is.
	Had  skerry.Bytes `json:"had,omitempty"`
	Took skerry.Bytes `json:"took,omitempty"`
	idle skerry.Bytes // reserved so
	// Routine is what the schedule of its service has come to; nil: there is none.
	Routine *routine `json:"routine,omitempty"`
}

// Want is what an instance wants of its volumes.
type Want struct {
	Size  skerry.Bytes
	Org   string
	Names []string
	Sizes map[string]skerry.Bytes // of Names
}

// View is a claim as others see it.
type View struct {
	spec.VolumeClaim
	Want
	Worker string
	Found  time.Time // not zero: nobody has asked for them since they were found on the worker
}

// Gone is a claim that was given up.
type Gone struct {
	spec.VolumeClaim
	Data bool // there was some
}

// New gives a site without claims.
func New(site Site) *Claims {
	return &Claims{site: site, all: map[spec.VolumeClaim]*claim{}, snaps: map[spec.SnapshotID]*spec.Snapshot{},
		busy: map[spec.VolumeClaim]restoring{}, sending: map[spec.SnapshotID]bool{}}
}

// Record gives a new value of the type that a record is read into.
func Record() any { return new(claim) }

// Load takes a record.
func (c *Claims) Load(value []byte) error {
	k := new(claim)
	err := json.Unmarshal(value, k)
	if err == nil {
		c.all[k.VolumeClaim] = k
	}
	return err
}

// Start writes and sends all again, because half of a commit may have been lost.
func (c *Claims) Start() {
	for _, v := range c.sorted() {
		c.note(c.all[v])
		if c.all[v].Routine != nil {
			c.look = soon
		}
	}
	c.due, c.changed = true, true
}

// Touch notes that something changed on which claims depend: an instance, or what its owner wants.
func (c *Claims) Touch() { c.due = true }

// Told notes that an owner said something of volumes: what their schedules have come to is now for it to know as well.
func (c *Claims) Told() { c.due, c.changed = true, true }

// Place has a worker keep volumes, for an instance that it gets.
func (c *Claims) Place(volume spec.VolumeClaim, worker string, want Want) {
	kept := c.all[volume]
	if kept == nil {
		kept = &claim{VolumeClaim: volume, Worker: worker}
		c.all[volume] = kept
	}
	if kept.Worker != worker {
		c.reserve(kept, 0)
		c.site.Drop(kept.Worker, volume)
		c.dropFormer(volume)
		kept.Worker, kept.Ran, kept.Had = worker, false, 0
	}
	kept.Found = time.Time{}
	if kept.Org != "" && kept.Org != want.Org {
		kept.Routine = nil // what was sent away is not of this one
	}
	if kept.Took = 0; kept.Ran {
		kept.Had = kept.size() - c.noteFormer(kept, want.Names)
	}
	kept.Size, kept.Org, kept.Names, kept.Sizes = want.Size, want.Org, want.Names, nil
	if len(want.Names) > 1 {
		kept.Sizes = want.Sizes
	}
	if kept.Had <= kept.Size {
		kept.Had = 0
	}
	c.note(kept)
	c.due = true
}

// TakeUp notes volumes of an organisation that a worker keeps of which this store does not know: it was lost. They belong to nobody until
// somebody wants volumes of their name, which has them as they are. It reports false if another worker has such volumes; a single one is
// taken up with all of its replica.
func TakeUp(c *Claims, now time.Time, v spec.VolumeClaim, worker, org string) bool {
	if k := c.all[v]; k != nil || v.Volume != "" && c.all[v.Whole()] == nil {
		return k != nil && k.Worker == worker
	}
	k := &claim{VolumeClaim: v, Worker: worker, Ran: true, Org: org, Made: true, Found: now}
	if v.Volume != "" {
		k.Names = []string{v.Volume}
	}
	c.all[v] = k
	c.note(k)
	c.due = true
	return true
}

// Adopt notes whose data it is, where an earlier version did not.
func (c *Claims) Adopt(v spec.VolumeClaim, org string) {
	if k := c.all[v]; k != nil && k.Org == "" && org != "" {
		k.Org = org
		c.note(k)
	}
}

// OtherOrg gives the organisation that has data under the name of volumes which another one wants, or "".
func (c *Claims) OtherOrg(v spec.VolumeClaim, org string) string {
	if k := c.all[v]; k != nil && k.Ran && k.Org != org {
		return k.Org
	}
	return ""
}

// List gives all claims, sorted.
func (c *Claims) List() []View {
	var out []View
	for _, v := range c.sorted() {
		if k := c.all[v]; !c.again(k) {
			out = append(out, View{v, Want{Size: k.size(), Org: k.Org, Names: k.Names}, k.Worker, k.Found})
		}
	}
	return out
}

// Ran notes that an instance ran on a worker, so that there is data now.
func (c *Claims) Ran(v spec.VolumeClaim, worker string) {
	if k := c.all[v]; k != nil && k.Worker == worker && !k.Ran {
		k.Ran = true
		c.note(k)
	}
}

// Known reports whether a worker was ever to keep volumes.
func (c *Claims) Known(v spec.VolumeClaim) bool { return c.all[v] != nil }

// At gives the worker that has data of a replica, or "".
func (c *Claims) At(v spec.VolumeClaim) string {
	if k := c.all[v]; k != nil && k.Ran {
		return k.Worker
	}
	return ""
}

// Idle is what is reserved for volumes while no instance holds their room.
func (c *Claims) Idle(v spec.VolumeClaim) skerry.Bytes {
	if k := c.all[v]; k != nil {
		return k.idle
	}
	return 0
}

// Wanted reports whether a worker is to have volumes that it was told to keep.
func (c *Claims) Wanted(v spec.VolumeClaim, worker string) bool {
	if k := c.all[v]; k != nil {
		return k.Worker == worker
	}
	if v.Volume != "" {
		return c.Wanted(v.Whole(), worker)
	}
	return c.site.Replica(v)
}

// Reserve keeps room for the volumes of replicas that do not run, and only of those.
func (c *Claims) Reserve() {
	if !c.due {
		return
	}
	for _, k := range c.all {
		c.reserve(k, c.rest(k))
	}
}

// size is what the volumes may take of the disk.
func (k *claim) size() skerry.Bytes { return max(k.Size, k.Had) }

// rest is what is to be reserved for volumes: what no instance holds of them.
func (c *Claims) rest(k *claim) skerry.Bytes {
	if c.again(k) {
		return 0
	}
	if c.site.Occupied(k.VolumeClaim, k.Worker) {
		return k.size() - k.Size
	}
	return k.size()
}

// Release has workers remove the data of replicas that nobody wants any more, and of those that never ran. It gives the organisations
// that have less now.
func (c *Claims) Release() (orgs []string) {
	if !c.due {
		return nil
	}
	c.Reserve()
	c.due = false
	for _, volume := range c.sorted() {
		kept := c.all[volume]
		c.follow(kept)
		owned := c.site.Owned(volume)
		if volume.Volume != "" && !owned && c.all[volume.Whole()] == nil { // its directory went with that of the replica
			orgs = append(orgs, kept.Org)
			c.Remove(volume)
			continue
		}
		if owned && !kept.Owned {
			kept.Owned = true
			c.note(kept)
		}
		if owned || kept.Ran && !kept.Owned || c.site.Replica(volume) {
			continue
		}
		c.reserve(kept, 0)
		c.site.Drop(kept.Worker, volume)
		delete(c.all, volume)
		c.changed = true
		c.site.Write(wire.Write{Key: Prefix + volume.Key()})
		orgs = append(orgs, kept.Org)
	}
	return orgs
}

// Forget gives up what was on a worker that is gone for good.
func (c *Claims) Forget(worker string) (gone []Gone) {
	for _, v := range c.sorted() {
		if k := c.all[v]; k.Worker == worker {
			delete(c.all, v)
			c.changed = true
			gone = append(gone, Gone{v, k.Ran && v.Volume == ""})
		}
	}
	for _, s := range c.Snapshots() {
		if string(s.Worker) == worker {
			c.forgetSnapshot(s.ID)
		}
	}
	return gone
}

// noteFormer claims the volumes with data that a replica had, and no longer has, and gives what they take. They are
// nobody's until the owner has told of them.
func (c *Claims) noteFormer(kept *claim, has []string) (sum skerry.Bytes) {
	for _, name := range kept.Names {
		if slices.Contains(has, name) {
			continue
		}
		size := kept.Sizes[name]
		if len(kept.Names) == 1 {
			size = kept.size()
		}
		v := kept.VolumeClaim
		v.Volume = name
		one := c.all[v]
		if one == nil {
			one = &claim{VolumeClaim: v, Made: true}
			c.all[v] = one
		}
		one.Worker, one.Ran, one.Size, one.Org, one.Names = kept.Worker, true, max(size, one.Size), kept.Org, []string{name}
		c.note(one)
		sum += size
	}
	return sum
}

// dropFormer forgets the volumes that a replica no longer has, because its directory is removed.
func (c *Claims) dropFormer(of spec.VolumeClaim) {
	for _, v := range c.sorted() {
		if v.Volume != "" && v.Whole() == of {
			c.Remove(v)
		}
	}
}

// Former lists the volumes that a replica no longer has and that are kept, besides those of some names.
func (c *Claims) Former(of spec.VolumeClaim, besides []string) (out []spec.VolumeClaim) {
	for _, v := range c.sorted() {
		if v.Volume != "" && v.Whole() == of && !c.again(c.all[v]) && !slices.Contains(besides, v.Volume) {
			out = append(out, v)
		}
	}
	return out
}

// again reports whether a claim is of a single volume that its replica has again, and which says nothing meanwhile.
func (c *Claims) again(k *claim) bool {
	if k.Volume == "" {
		return false
	}
	whole := c.all[k.Whole()]
	return whole != nil && slices.Contains(whole.Names, k.Volume)
}

// Audit reports what of the claims contradicts itself, and what is reserved for them on each worker.
func (c *Claims) Audit() (reserved map[string]skerry.Bytes, faults []string) {
	reserved = map[string]skerry.Bytes{}
	for v, k := range c.all {
		reserved[k.Worker] += k.idle
		if k.VolumeClaim != v {
			faults = append(faults, fmt.Sprintf("the claim of %s is listed as that of %s", k.Key(), v.Key()))
		}
		if k.Worker == "" {
			faults = append(faults, v.Key()+" is claimed nowhere")
		}
		if !c.due && k.idle != 0 && k.idle != c.rest(k) {
			faults = append(faults, fmt.Sprintf("%s: %d of %d bytes are reserved on %s; an instance holds them: %v", v.Key(), k.idle, k.size(),
				k.Worker,
				c.site.Occupied(v, k.Worker)))
		}
	}
	return reserved, faults
}

// reserve keeps so much of a worker's disk for volumes that no instance has.
func (c *Claims) reserve(k *claim, size skerry.Bytes) {
	if k.idle != size {
		c.site.Reserve(k.Worker, size-k.idle)
		k.idle = size
	}
}

func (c *Claims) note(k *claim) {
	data, err := json.Marshal(k)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	c.changed = c.changed || k.Routine != nil
	c.site.Write(wire.Write{Key: Prefix + k.Key(), Value: data})
	c.site.Keep(k.Worker, k.VolumeClaim, k.Org)
}

func (c *Claims) sorted() []spec.VolumeClaim {
	return slices.SortedFunc(maps.Keys(c.all), spec.VolumeClaim.Compare)
}
