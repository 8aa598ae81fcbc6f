package sched

import (
	"math"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestUsers(t *testing.T) {
	ms := func(n int) *spec.Duration { return new(spec.Duration(time.Duration(n) * time.Millisecond)) }
	users := func(list ...spec.User) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Users = list }
	}
	measured := func(list ...wire.UserPosition) func(*Request) { return func(r *Request) { r.Users = list } }
	here := func(w *Worker) {
		w.Location, w.Coordinate = &spec.Location{Lat: 48, Lon: 11}, &spec.Coordinate{Height: 1}
	}
	at := wire.UserPosition{Coordinate: spec.Coordinate{Vec: [3]float64{10}, Height: 2}}
	place, addr := &spec.Location{Lat: 48.5, Lon: 11}, "192.0.2.1"
	testRule(t, Users{}, []ruleCase{
		{name: "geo_trg within", spec: users(spec.User{Location: place, MaxDistance: 60}), worker: here},
		{name: "geo_trg beyond", spec: users(spec.User{Location: place, MaxDistance: 50}), worker: here, want: "distance: it is 55.6 km from user 0, at most 50.0 km are allowed"},
		{name: "geo_trg, worker unknown", spec: users(spec.User{Location: place, MaxDistance: 50}), want: "location: its location is not known"},
		{name: "geo_trg off the earth", spec: users(spec.User{Location: &spec.Location{Lat: math.NaN()}, MaxDistance: 50}), worker: here, want: "distance: it is NaN km from user 0, at most 50.0 km are allowed"},
		{name: "lat_trg within", spec: users(spec.User{Address: addr, MaxLatency: ms(13)}), ask: measured(at), worker: here},
		{name: "lat_trg beyond", spec: users(spec.User{Address: addr, MaxLatency: ms(12)}), ask: measured(at), worker: here, want: "latency: it is about 13.0 ms from user 192.0.2.1, at most 12.0 ms are allowed"},
		{name: "lat_trg, worker unknown", spec: users(spec.User{Address: addr, MaxLatency: ms(12)}), ask: measured(at), want: "latency: its place in the network is not known yet"},
		{name: "lat_trg, no answer", spec: users(spec.User{Address: addr, MaxLatency: ms(12)}), ask: measured(wire.UserPosition{Unknown: "nobody was answered"}), worker: here, want: "latency: the round trip to user 192.0.2.1 is not known: nobody was answered"},
		{name: "lat_trg, not measured", spec: users(spec.User{Address: addr, MaxLatency: ms(12)}), worker: here, want: "latency: the round trip to user 192.0.2.1 is not known: was not measured"},
		{name: "both: one is not enough", spec: users(spec.User{Location: place, MaxDistance: 60, Address: addr, MaxLatency: ms(12)}), ask: measured(at), worker: here, want: "latency: it is about 13.0 ms from user 192.0.2.1, at most 12.0 ms are allowed"},
		{name: "both: the other is not enough", spec: users(spec.User{Location: place, MaxDistance: 50, Address: addr, MaxLatency: ms(13)}), ask: measured(at), worker: here, want: "distance: it is 55.6 km from user 192.0.2.1, at most 50.0 km are allowed"},
		{name: "both", spec: users(spec.User{Location: place, MaxDistance: 60, Address: addr, MaxLatency: ms(13)}), ask: measured(at), worker: here},
		{name: "every user", spec: users(spec.User{Location: place, MaxDistance: 60}, spec.User{Location: &spec.Location{}, MaxDistance: 60}), ask: measured(wire.UserPosition{}, wire.UserPosition{}), worker: here, want: "distance: it is 5442.0 km from user 1, at most 60.0 km are allowed"},
		{name: "the service's latency counts for users without their own", spec: func(s *spec.ServiceSpec) {
			s.Placement.Users, s.Placement.MaxLatency = []spec.User{{Address: addr}}, ms(12)
		}, ask: measured(at), worker: here, want: "latency: it is about 13.0 ms from user 192.0.2.1, at most 12.0 ms are allowed"},
	})
}
