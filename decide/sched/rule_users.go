package sched

import (
	"fmt"
	"math"
	"math/bits"

	"skerry.dev/skerry/wire"
)

// Users rules out workers too far from a user, on the earth or in the network (Algorithm 2, lines 8 to 16: service to
// user). Where a constraint carries both limits, both must hold.
type Users struct{}

func (Users) Name() string { return "users" }

func (Users) Lasting() bool { return true }

func (Users) For(query *Query) Check {
	p := &query.Spec.Placement
	c := &users{s: query.Site}
	for i, u := range p.Users {
		x := user{number: i, chord2: math.Inf(1), ms: math.Inf(1), km: u.MaxDistance, address: u.Address}
		if u.Location != nil && u.MaxDistance > 0 {
			x.at, x.chord2 = onSphere(*u.Location), chord2(u.MaxDistance)
		}
		if ms := p.UserLatency(u); ms > 0 {
			x.ms = ms
			switch {
			case i >= len(query.Request.Users):
				x.unknown = "was not measured"
			case query.Request.Users[i].Unknown != "":
				x.unknown = query.Request.Users[i].Unknown
			default:
				k := query.Request.Users[i].Coordinate
				x.net = [4]float32{float32(k.Vec[0]), float32(k.Vec[1]), float32(k.Vec[2]), float32(k.Height)}
			}
		}
		c.list = append(c.list, x)
	}
	if len(c.list) == 0 {
		return nil
	}
	return c
}

type users struct {
	s    *Site
	list []user
}

type user struct {
	number  int
	at      [3]float32
	chord2  float64 // infinite: no limit
	km      float64
	net     [4]float32
	ms      float64 // infinite: no limit
	address string
	unknown string // why net is not known
}

func (c *users) Impossible(sum *summary) bool {
	for i := range c.list {
		u := &c.list[i]
		if !math.IsInf(u.chord2, 1) && boxDistance2(u.at, sum.atLo, sum.atHi) > u.chord2 {
			return true
		}
		if !math.IsInf(u.ms, 1) && (u.unknown != "" || sum.leastRTT(u.net) > u.ms) {
			return true
		}
	}
	return false
}

func (c *users) Keep(b int, mask uint64) uint64 {
	for i := range c.list {
		u := &c.list[i]
		for left := mask; left != 0; left &= left - 1 {
			bit := bits.TrailingZeros64(left)
			if !c.near(u, b*64+bit) {
				mask &^= 1 << bit
			}
		}
	}
	return mask
}

func (c *users) near(u *user, n int) bool {
	if !math.IsInf(u.chord2, 1) && (c.s.at[n] == [3]float32{} || !(distance2(c.s.at[n], u.at) <= u.chord2)) {
		return false
	}
	return math.IsInf(u.ms, 1) || u.unknown == "" && c.s.net[n][3] >= 0 && rtt(c.s.net[n], u.net) <= u.ms
}

func (c *users) Miss(n int) (string, float64) {
	for i := range c.list {
		u := &c.list[i]
		if c.near(u, n) {
			continue
		}
		switch what := c.lacks(u, n); {
		case what == "distance":
			by := math.Sqrt(distance2(c.s.at[n], u.at)/u.chord2) - 1 // of straight lines, which is quick and orders as well
			if math.IsNaN(by) {
				by = 1e9
			}
			return what, by
		case what == "location" || u.unknown != "" || c.s.net[n][3] < 0:
			return what, 1e9
		default:
			return what, rtt(c.s.net[n], u.net)/u.ms - 1
		}
	}
	return "latency", 0
}

// lacks names what is wrong between a worker and a user.
func (c *users) lacks(u *user, n int) string {
	if !math.IsInf(u.chord2, 1) {
		if c.s.at[n] == [3]float32{} {
			return "location"
		}
		if !(distance2(c.s.at[n], u.at) <= u.chord2) {
			return "distance"
		}
	}
	return "latency"
}

func (c *users) Reason(n int) wire.Reason {
	for i := range c.list {
		u := &c.list[i]
		if c.near(u, n) {
			continue
		}
		who := fmt.Sprintf("user %d", u.number)
		if u.address != "" {
			who = "user " + u.address
		}
		switch c.lacks(u, n) {
		case "location":
			return wire.Reason{What: "location", Text: "its location is not known", Hint: "start the worker with --location LAT,LON"}
		case "distance":
			km := kmOf(distance2(c.s.at[n], u.at))
			return wire.Reason{What: "distance", Text: fmt.Sprintf("it is %.1f km from %s, at most %.1f km are allowed", km, who, u.km),
				Hint: fmt.Sprintf("raise the user's maxDistance to %.0f or add a worker nearer", math.Ceil(km))}
		}
		switch {
		case u.unknown != "":
			return wire.Reason{What: "latency", Text: "the round trip to " + who + " is not known: " + u.unknown,
				Hint: "see that the workers reach the address by ICMP, or by TCP at the port given with it"}
		case c.s.net[n][3] < 0:
			return wire.Reason{What: "latency", Text: "its place in the network is not known yet",
				Hint: "workers measure round trips among each other; wait a little, and see that they reach each other by UDP"}
		}
		ms := rtt(c.s.net[n], u.net)
		return wire.Reason{What: "latency", Text: fmt.Sprintf("it is about %.1f ms from %s, at most %.1f ms are allowed", ms, who, u.ms),
			Hint: fmt.Sprintf("raise maxLatency to %.0fms or add a worker nearer to the user", math.Ceil(ms))}
	}
	return wire.Reason{What: "latency"}
}
