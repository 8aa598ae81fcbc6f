package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// SnapshotID names a snapshot at its site. It is a part of names of files.
type SnapshotID string

const maxSnapshotID = 120

// Check refuses what is no id.
func (id SnapshotID) Check() error {
	ok := len(id) > 0 && len(id) <= maxSnapshotID && !strings.HasPrefix(string(id), "-")
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return skerry.Errorf(skerry.CodeInvalid, "%.100q is not the name of a snapshot", string(id)).WithHint("`skerry volume snapshots` lists them")
	}
	return nil
}

// NewSnapshotID gives the id of a snapshot of volumes; suffix tells it from others.
func NewSnapshotID(v VolumeClaim, suffix string) SnapshotID {
	name := func(s string) string { return s[:min(len(s), 40)] }
	return SnapshotID(name(v.Service.App.Name) + "-" + name(v.Service.Service) + "-" + strconv.Itoa(v.Ordinal) + "-" + suffix)
}

const prefixSnapshot = "snap/"

// Key is the snapshot's key in the desired set of the worker that has it: while it is there the snapshot stays, and its
// tombstone removes it.
func (id SnapshotID) Key() string { return prefixSnapshot + string(id) }

// ParseSnapshotKey reads what SnapshotID.Key writes.
func ParseSnapshotKey(key string) (id SnapshotID, ok bool) {
	rest, ok := strings.CutPrefix(key, prefixSnapshot)
	id = SnapshotID(rest)
	return id, ok && id.Check() == nil
}

// KeptSnapshot is what a site tells a worker of a snapshot that it is to keep. The worker needs no more of it than its key; a site that has
// lost its store finds its record of the snapshot in it, and sees by the seal that it was this site which had it kept there. Sites of
// earlier versions send the id in its place.
type KeptSnapshot struct {
	Record []byte `json:"record" cbor:"1,keyasint"` // a Snapshot in JSON
	Seal   []byte `json:"seal,omitempty" cbor:"2,keyasint,omitempty"`
	Given
}

// SnapshotState says how far a snapshot is.
type SnapshotState string

// States of snapshots. One that failed is none, and leaves an event.
const (
	SnapshotTaking SnapshotState = "Taking"
	SnapshotReady  SnapshotState = "Ready"
)

// How a snapshot came to be the state of one moment.
const (
	SnapshotIdle     = "idle"     // nothing ran that could have written
	SnapshotReflink  = "reflink"  // writers stood still until the files were cloned
	SnapshotFrozen   = "frozen"   // writers stood still until the files were copied
	SnapshotImported = "imported" // it came as a file
)

// SnapshotVolume is a volume in a snapshot.
type SnapshotVolume struct {
	Name string       `json:"name"`
	Size skerry.Bytes `json:"size,omitempty" doc:"Size limit; 0 if it has none of its own."`
}

// Snapshot is a copy of the local volumes of a replica, as they were at one moment. It lies on one worker of a site.
type Snapshot struct {
	ID        SnapshotID        `json:"id"`
	Namespace string            `json:"namespace"`
	App       string            `json:"app"`
	Service   string            `json:"service"`
	Replica   int               `json:"replica"`
	Org       string            `json:"org,omitempty"`
	Volumes   []SnapshotVolume  `json:"volumes,omitempty"`
	State     SnapshotState     `json:"state" enum:"Taking,Ready"`
	At        time.Time         `json:"at" doc:"Point in time of its content."`
	Size      skerry.Bytes      `json:"size,omitempty" doc:"Space on disk. While it is being taken, the space reserved for it."`
	SHA256    string            `json:"sha256,omitempty" doc:"SHA-256 of its file, in hexadecimal. It is verified whenever the snapshot is used."`
	How       string            `json:"how,omitempty" enum:"idle,reflink,frozen,imported" doc:"How consistency was ensured."`
	Paused    Duration          `json:"paused,omitempty" doc:"How long writers were paused."`
	Skipped   int               `json:"skipped,omitempty" doc:"Sockets, pipes and devices that were left out."`
	Worker    skerry.WorkerName `json:"worker,omitempty"`
	Actor     string            `json:"actor,omitempty" doc:"User who requested it. Empty if a schedule did."`
	Scheduled bool              `json:"scheduled,omitempty" doc:"Taken by the schedule in the manifest, which also deletes it eventually."`
	Exported  string            `json:"exported,omitempty" doc:"S3 object it was exported to, if the manifest asks for exports."`
}

// Claim gives the volumes that a snapshot is of.
func (s *Snapshot) Claim() VolumeClaim {
	return VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: s.Namespace, Name: s.App}, Service: s.Service},
		Ordinal: s.Replica}
}

// SetClaim says which volumes a snapshot is of.
func (s *Snapshot) SetClaim(v VolumeClaim) {
	s.Namespace, s.App, s.Service, s.Replica = v.Service.App.Namespace, v.Service.App.Name, v.Service.Service, v.Ordinal
}

// Takes is what its volumes may take of a disk, and their names.
func (s *Snapshot) Takes() (names []string, size skerry.Bytes) {
	for _, v := range s.Volumes {
		names = append(names, v.Name)
		size = skerry.Bytes(plus(int64(size), int64(v.Size)))
	}
	return names, size
}

// SortSnapshots sorts by what they are of, then by time.
func SortSnapshots(list []Snapshot) {
	slices.SortFunc(list, func(a, b Snapshot) int {
		return cmp.Or(a.Claim().Compare(b.Claim()), a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
}

// SnapshotRequest asks for a snapshot.
type SnapshotRequest struct {
	// MaxPause bounds how long writers stand still; 0: DefaultSnapshotPause.
	MaxPause Duration `json:"maxPause,omitempty" doc:"How long writers may be paused. Default: 20s."`
}

// DefaultSnapshotPause is how long writers stand still at most, where nothing else is said.
const DefaultSnapshotPause = 20 * time.Second

// RestoreRequest asks for the content of a snapshot to become that of volumes.
type RestoreRequest struct {
	To     string            `json:"to,omitempty" doc:"New volumes in the snapshot's namespace, as APPLICATION/SERVICE/REPLICA. Default: replace the content of the volumes it was taken from."`
	Worker skerry.WorkerName `json:"worker,omitempty" doc:"Worker for the volumes. Default: their present worker; for new volumes, the worker that stores the snapshot."`
}

// Snapshots says how copies of the local volumes of a service are made, and when by themselves.
type Snapshots struct {
	Schedule string          `json:"schedule,omitempty" doc:"When the site copies the volumes of each replica by itself: five fields as in crontab, or @daily and the like; UTC unless CRON_TZ= is given. Only the last of several missed times is made up for."`
	Keep     int             `json:"keep,omitempty" doc:"How many snapshots of the schedule stay of each replica; when one is complete, older ones go. Those that somebody asked for stay. Default: 7." min:"1" max:"100"`
	Export   *SnapshotExport `json:"export,omitempty" doc:"Where the site sends each snapshot of the schedule besides."`
	MaxPause Duration        `json:"maxPause,omitempty" doc:"How long the service may stand still for a copy, up to 1h. Default: 20s."`
	Before   *SnapshotHook   `json:"before,omitempty" doc:"A command that has the program write out what a copy needs, such as a checkpoint or a dump; without it a copy is what a power cut would leave, which databases recover from."`
}

// DefaultSnapshotsKept is how many snapshots of a schedule stay where nothing is said.
const DefaultSnapshotsKept = 7

// SnapshotExport sends the snapshots of a schedule away.
type SnapshotExport struct {
	To         string   `json:"to" doc:"Name of a place in S3 that the operator of the site has set up (skerry cluster --snapshot-places)."`
	Keep       int      `json:"keep,omitempty" doc:"How many stay there of each replica; older ones go. Default: as many as at the site." min:"1" max:"1000"`
	Recipients []string `json:"recipients,omitempty" doc:"age public keys to encrypt them to, in place of those of the place; at most 10."`
}

// Far is how many snapshots of the schedule stay where they are sent.
func (s *Snapshots) Far() int {
	if s.Export == nil {
		return 0
	}
	return cmp.Or(s.Export.Keep, s.Kept())
}

// Limits of snapshots in a manifest.
const (
	MaxSnapshotsSent = 1000
	maxRecipients    = 10
	MaxSnapshotsKept = 100
	MaxSnapshotPause = time.Hour
)

// Kept is how many snapshots of the schedule stay.
func (s *Snapshots) Kept() int { return cmp.Or(s.Keep, DefaultSnapshotsKept) }

// SnapshotHook is a command that runs before the volumes are copied.
type SnapshotHook struct {
	Command []string `json:"command" doc:"Program and arguments; run in the main container, if that runs. Unless it ends with status 0, nothing is copied."`
	Timeout Duration `json:"timeout,omitempty" doc:"Longest time for it, from 1s to 10m. Default: 1m."`
}

// DefaultHookTimeout bounds a hook where nothing is said.
const DefaultHookTimeout = time.Minute

// Within is how long the hook may take.
func (h *SnapshotHook) Within() time.Duration {
	return cmp.Or(time.Duration(h.Timeout), DefaultHookTimeout)
}
