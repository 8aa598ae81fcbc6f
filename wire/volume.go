package wire

import "time"

// VolumeSchedule shows the snapshots that a schedule takes of the local volumes of a replica. Reason is empty while the last time of the
// schedule has its snapshot. A site reports it for volumes of the root's applications: an item of its observed set, under the key of the
// claim.
type VolumeSchedule struct {
	Schedule string    `json:"schedule" cbor:"1,keyasint" doc:"As in the manifest."`
	Keep     int       `json:"keep" cbor:"2,keyasint,omitempty" doc:"Number of scheduled snapshots to keep."`
	Kept     int       `json:"kept" cbor:"3,keyasint,omitempty" doc:"Number of scheduled snapshots."`
	Last     time.Time `json:"last,omitzero" cbor:"4,keyasint,omitzero" doc:"Point in time of the newest one."`
	Next     time.Time `json:"next,omitzero" cbor:"5,keyasint,omitzero" doc:"Next scheduled time."`
	Failed   time.Time `json:"failed,omitzero" cbor:"6,keyasint,omitzero" doc:"Last failed attempt, if none has succeeded since."`
	Reason   string    `json:"reason,omitempty" cbor:"7,keyasint,omitempty" doc:"Why it failed."`
	Again    time.Time `json:"again,omitzero" cbor:"8,keyasint,omitzero" doc:"Time of the next attempt."`
	// Export is what has come of sending them away; nil: they stay at the site.
	Export *VolumeExport `json:"export,omitempty" cbor:"9,keyasint,omitempty" doc:"Status of exports."`
	// OutOfTouch is set by a root whose site does not report now.
	OutOfTouch bool `json:"outOfTouch,omitempty" cbor:"-" doc:"The site is unreachable; this is its last report."`
}

// Bound cuts what is too long to be kept.
func (s *VolumeSchedule) Bound() {
	s.Schedule, s.Reason = cut(s.Schedule, maxSaidName), cut(s.Reason, maxSaid)
	if e := s.Export; e != nil {
		e.To, e.Reason = cut(e.To, maxSaidName), cut(e.Reason, maxSaid)
	}
}

// VolumeExport shows the snapshots of a schedule that were sent away. Reason is empty while all that are to be there are.
type VolumeExport struct {
	To     string    `json:"to" cbor:"1,keyasint" doc:"Destination, as in the manifest."`
	Keep   int       `json:"keep" cbor:"2,keyasint,omitempty" doc:"Number of snapshots to keep there."`
	Kept   int       `json:"kept" cbor:"3,keyasint,omitempty" doc:"Number of complete snapshots there."`
	Last   time.Time `json:"last,omitzero" cbor:"4,keyasint,omitzero" doc:"Point in time of the last exported snapshot."`
	Failed time.Time `json:"failed,omitzero" cbor:"5,keyasint,omitzero" doc:"Last failed attempt, if none has succeeded since."`
	Reason string    `json:"reason,omitempty" cbor:"6,keyasint,omitempty" doc:"Why it failed, or why old ones are not deleted."`
	Again  time.Time `json:"again,omitzero" cbor:"7,keyasint,omitzero" doc:"Time of the next attempt."`
}
