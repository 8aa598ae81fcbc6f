package wire

import "time"

// VolumeSchedule shows the snapshots that a schedule takes of the local volumes of a replica. Reason is empty while the last time of the
// schedule has its snapshot. A site reports it for volumes of the root's applications: an item of its observed set, under the key of the
// claim.
type VolumeSchedule struct {
	Schedule string    `json:"schedule" cbor:"1,keyasint" doc:"As in the manifest."`
	Keep     int       `json:"keep" cbor:"2,keyasint,omitempty" doc:"How many snapshots of the schedule stay."`
	Kept     int       `json:"kept" cbor:"3,keyasint,omitempty" doc:"How many there are."`
	Last     time.Time `json:"last,omitzero" cbor:"4,keyasint,omitzero" doc:"The moment of the newest of them."`
	Next     time.Time `json:"next,omitzero" cbor:"5,keyasint,omitzero" doc:"The next time of the schedule."`
	Failed   time.Time `json:"failed,omitzero" cbor:"6,keyasint,omitzero" doc:"The last try without success, if none succeeded since."`
	Reason   string    `json:"reason,omitempty" cbor:"7,keyasint,omitempty" doc:"Why it did not succeed."`
	Again    time.Time `json:"again,omitzero" cbor:"8,keyasint,omitzero" doc:"When it is tried again."`
	// Export is what has come of sending them away; nil: they stay at the site.
	Export *VolumeExport `json:"export,omitempty" cbor:"9,keyasint,omitempty" doc:"What has come of sending them away."`
	// OutOfTouch is set by a root whose site does not report now.
	OutOfTouch bool `json:"outOfTouch,omitempty" cbor:"-" doc:"The site is out of touch; this is its last report."`
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
	To     string    `json:"to" cbor:"1,keyasint" doc:"Name of the place, as in the manifest."`
	Keep   int       `json:"keep" cbor:"2,keyasint,omitempty" doc:"How many stay there."`
	Kept   int       `json:"kept" cbor:"3,keyasint,omitempty" doc:"How many are there, whole."`
	Last   time.Time `json:"last,omitzero" cbor:"4,keyasint,omitzero" doc:"The moment of the snapshot that was sent last."`
	Failed time.Time `json:"failed,omitzero" cbor:"5,keyasint,omitzero" doc:"The last try without success, if none succeeded since."`
	Reason string    `json:"reason,omitempty" cbor:"6,keyasint,omitempty" doc:"Why it did not succeed, or why old ones are not deleted."`
	Again  time.Time `json:"again,omitzero" cbor:"7,keyasint,omitzero" doc:"When it is tried again."`
}
