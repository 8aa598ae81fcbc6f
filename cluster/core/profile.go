package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Profile says how soon a site notices that a worker is lost, and what that may cost on the wire: the rows control.wire of
// docs/BENCHMARKS.md have the goals.
type Profile struct {
	Name      string
	LostAfter time.Duration // without a sign of life, and its instances are replaced
	Beat      time.Duration // from one beat of a worker to the next
	KeepAlive time.Duration // of connections of workers whose beats do not get through
	// These are the least that a worker waits between two; 0: as long as it is used to, or was told.
	Report     time.Duration // reports while something changes,
	ReportIdle time.Duration // and while nothing does
	Probe      time.Duration // questions for round trips to other workers
}

// Profiles. Metered is for links that are paid for by the byte: below 0.25 kbit/s for an idle worker.
var (
	Fast    = Profile{Name: "fast", LostAfter: 3 * time.Second, Beat: time.Second, KeepAlive: 2 * time.Second}
	Metered = Profile{Name: "metered", LostAfter: 90 * time.Second, Beat: 30 * time.Second, KeepAlive: time.Minute,
		Report: time.Minute, ReportIdle: 5 * time.Minute, Probe: 2 * time.Minute}
)

// ProfileOf finds a profile by name; "" is Fast.
func ProfileOf(name string) (Profile, error) {
	for _, p := range []Profile{Fast, Metered} {
		if name == p.Name || name == "" {
			return p, nil
		}
	}
	return Profile{}, skerry.Errorf(skerry.CodeInvalid, "there is no profile %q", name).WithHint("choose %s or %s", Fast.Name, Metered.Name)
}

// Pace is what workers are told of a profile, or nil.
func (p Profile) Pace() *wire.Pace {
	ms := func(d time.Duration) uint32 { return uint32(d / time.Millisecond) }
	if told := (wire.Pace{Report: ms(p.Report), ReportIdle: ms(p.ReportIdle), Probe: ms(p.Probe)}); told != (wire.Pace{}) {
		return &told
	}
	return nil
}
