package placing

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Located is where the users of a service are in the network, as far as workers measured it.
type Located struct {
	Users   []wire.UserPosition  `json:"users,omitempty"`
	UsersAt time.Time            `json:"usersAt,omitzero"` // when that was measured
	heard   []map[string]float64 // the round trips behind Users, by user and worker
	heardAt uint64               // a hash of where those workers were
}

// Where gives the place of a worker in the network, or nil.
type Where func(worker string) *spec.Coordinate

const (
	usersGoodFor = 5 * time.Minute
	usersRetry   = 20 * time.Second // where nobody answered
)

// Known reports whether what is known is good for a new place.
func (l *Located) Known(now time.Time) bool {
	fresh := usersGoodFor
	if slices.ContainsFunc(l.Users, func(u wire.UserPosition) bool { return u.Unknown != "" }) {
		fresh = usersRetry
	}
	return l.Users != nil && now.Sub(l.UsersAt) < fresh
}

// Old reports whether it is to be measured again where the service runs: users move.
func (l *Located) Old(now time.Time) bool {
	return len(l.Users) > 0 && now.Sub(l.UsersAt) >= usersGoodFor
}

// Set works out where users are from the round trips measured, in the order of the users with a limit.
func (l *Located) Set(now time.Time, q *spec.Placement, rtts []map[string]float64, unknown string, where Where) {
	l.Users, l.UsersAt, l.heard = make([]wire.UserPosition, len(q.Users)), now, make([]map[string]float64, len(q.Users))
	next := 0
	for i, u := range q.Users {
		if q.UserLatency(u) == 0 {
			continue
		}
		if next >= len(rtts) {
			l.Users[i].Unknown = cmp.Or(unknown, "nobody measured it in time")
			continue
		}
		l.heard[i] = rtts[next]
		l.Users[i] = locate(rtts[next], where)
		next++
	}
	l.heardAt = l.frame(where)
}

// Update is Set while the service runs: who does not answer then is taken to be where it was.
func (l *Located) Update(now time.Time, q *spec.Placement, rtts []map[string]float64, where Where) {
	before, heard := l.Users, l.heard
	l.Set(now, q, rtts, "", where)
	for i := range l.Users {
		if l.Users[i].Unknown != "" && i < len(before) {
			l.Users[i] = before[i]
			if i < len(heard) {
				l.heard[i] = heard[i]
			}
		}
	}
}

// locate works out where a user is from the round trips that workers measured, in milliseconds.
func locate(rtt map[string]float64, where Where) (out wire.UserPosition) {
	var from []spec.Coordinate
	var ms []float64
	for _, name := range slices.Sorted(maps.Keys(rtt)) {
		if at := where(name); at != nil {
			from, ms = append(from, *at), append(ms, rtt[name])
		}
	}
	if len(from) == 0 {
		out.Unknown = "no worker got an answer from it"
		return out
	}
	out.Coordinate, out.Residual = coord.Trilaterate(from, ms)
	out.Probes = len(from)
	return out
}

// frame is a hash of the coordinates of the workers that measured.
func (l *Located) frame(where Where) uint64 {
	h := fnv.New64a()
	for _, rtt := range l.heard {
		for _, name := range slices.Sorted(maps.Keys(rtt)) {
			at := append([]byte(name), 0)
			if c := where(name); c != nil {
				for _, x := range append(c.Vec[:], c.Height) {
					at = binary.BigEndian.AppendUint64(at, math.Float64bits(x))
				}
			}
			h.Write(at)
		}
	}
	return h.Sum64()
}

// Shift places users anew in a network whose workers have moved since: coordinates only mean something to each other,
// and all of them may turn and drift together while no round trip changes.
func (l *Located) Shift(where Where) {
	if l.heard == nil {
		return
	}
	h := l.frame(where)
	if h == l.heardAt {
		return
	}
	l.heardAt = h
	for i, rtt := range l.heard {
		if rtt == nil || i >= len(l.Users) {
			continue
		}
		if at := locate(rtt, where); at.Unknown == "" {
			l.Users[i] = at
		}
	}
}
