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
	// OutOfTouch is set by a root whose site does not report now.
	OutOfTouch bool `json:"outOfTouch,omitempty" cbor:"-" doc:"The site is out of touch; this is its last report."`
}

// Bound cuts what is too long to be kept.
func (s *VolumeSchedule) Bound() {
	s.Schedule, s.Reason = cut(s.Schedule, maxSaidName), cut(s.Reason, maxSaid)
}
