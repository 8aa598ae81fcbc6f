package apps

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

func scaled(lo, hi int, up, down time.Duration) *spec.ServiceSpec {
	share, u, d := 0.7, spec.Duration(up), spec.Duration(down)
	return &spec.ServiceSpec{Name: "web", Resources: spec.Resources{CPU: 1000}, Scale: &spec.ScaleSpec{Min: &lo, Max: hi, Up: &u, Down: &d, Target: spec.ScaleTarget{CPU: &share}}}
}

// day is what a service has to bear at a time, in processors: little at night, much in the evening, with noise, and now and then
// a rush that comes within minutes.
func day(t time.Duration, rng *rand.Rand) float64 {
	hour := math.Mod(t.Hours(), 24)
	load := 3.2 + 2.6*math.Sin((hour-9)/24*2*math.Pi) + 0.4*math.Sin(hour*2*math.Pi)
	if in := rush(t); in > 0 && in < 30*time.Minute {
		load += 3 * math.Min(1, in.Minutes()/8)
	}
	return load * (1 + 0.06*rng.NormFloat64())
}

// rush gives how long ago the last rush began, or a negative time.
func rush(t time.Duration) time.Duration { return t%(7*time.Hour) - 6*time.Hour }

// run has a scaler follow the load of some days. An instance takes a while to start, and bears at most a processor.
func run(spec *spec.ServiceSpec, days int, rng *rand.Rand) (mean, missed float64, changes, flaps int) {
	const start = 20 * time.Second
	var s Scaler
	current := 1
	var starting []time.Time // when those that start are ready
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var lastDown, steps, bad, cost = -time.Hour, 0.0, 0.0, 0.0
	for t := time.Duration(0); t < time.Duration(days)*24*time.Hour; t += ScaleEvery {
		now := begin.Add(t)
		for len(starting) > 0 && !starting[0].After(now) {
			starting = starting[1:]
		}
		ready := current - len(starting)
		load := day(t, rng)
		if load > float64(ready) {
			bad++
		}
		steps, cost = steps+1, cost+float64(current)
		lo, hi := spec.Scale.Limits()
		n := s.Want(now, spec, lo, hi, current, Load{Measured: ready, CPU: skerry.MilliCPU(1000 * min(load, float64(ready)))})
		switch {
		case n > current:
			for range n - current {
				starting = append(starting, now.Add(start))
			}
			if in := rush(t); t-lastDown < 10*time.Minute && (in < 0 || in > 10*time.Minute) { // nobody foresees a rush
				flaps++
			}
			changes++
		case n < current:
			starting = starting[:max(0, len(starting)-(current-n))]
			lastDown = t
			changes++
		}
		current = n
	}
	return cost / steps, bad / steps, changes, flaps
}

// TestDaysOfLoad compares a service whose number of instances follows its load with one of a fixed number at the same cost.
func TestDaysOfLoad(t *testing.T) {
	for seed := range uint64(5) {
		mean, missed, changes, flaps := run(scaled(1, 20, 0, 5*time.Minute), 4, rand.New(rand.NewPCG(seed, 1)))
		rng := rand.New(rand.NewPCG(seed, 1))
		fixed, steps, bad := math.Ceil(mean), 0.0, 0.0
		for at := time.Duration(0); at < 4*24*time.Hour; at += ScaleEvery {
			if day(at, rng) > fixed {
				bad++
			}
			steps++
		}
		t.Logf("%.2f instances, %.2f %% of the time too few, %d changes; with %.0f all the time %.2f %%", mean, 100*missed, changes, fixed, 100*bad/steps)
		if missed >= bad/steps/4 {
			t.Errorf("too few instances for %.2f %% of the time, %.0f all the time are for %.2f %%", 100*missed, fixed, 100*bad/steps)
		}
		if flaps > changes/100+1 || changes > 4*24*4 {
			t.Errorf("%d changes in four days, of which %d took back one before", changes, flaps)
		}
	}
}

// TestTrendActsEarly has a load that rises steadily: an instance is there when it is needed, and not after.
func TestTrendActsEarly(t *testing.T) {
	spec := scaled(1, 50, 0, 5*time.Minute)
	late := func(trend bool) (n int) {
		var s Scaler
		current, at := 2, time.Unix(1e9, 0)
		var starting []time.Time
		for i := range 240 {
			now := at.Add(time.Duration(i) * ScaleEvery)
			for len(starting) > 0 && !starting[0].After(now) {
				starting = starting[1:]
			}
			load := 1000 + 40*float64(i)
			ready := current - len(starting)
			if load > 700*float64(ready)*1.1 {
				n++
			}
			if !trend {
				s.past = nil
			}
			for next := s.Want(now, spec, 1, 50, current, Load{Measured: ready, CPU: skerry.MilliCPU(load)}); current < next; current++ {
				starting = append(starting, now.Add(25*time.Second))
			}
		}
		return n
	}
	if with, without := late(true), late(false); with*2 > without {
		t.Errorf("above its target %d times with the trend, %d times without", with, without)
	}
}

func TestScaler(t *testing.T) {
	begin := time.Unix(1e9, 0)
	type look struct {
		after   time.Duration
		current int
		l       Load
		want    int
		why     string
	}
	for name, c := range map[string]struct {
		spec  *spec.ServiceSpec
		looks []look
	}{
		"more at once": {scaled(1, 10, 0, time.Minute), []look{{0, 2, Load{Measured: 2, CPU: 1390}, 2, "cpu: 1390m of 700m"}, {5 * time.Second, 2, Load{Measured: 2, CPU: 2000}, 3, ""}}},
		"more after a window": {scaled(1, 10, 30*time.Second, time.Minute), []look{{0, 2, Load{Measured: 2, CPU: 2000}, 2, "3, more, are not wanted for 30s yet"}, {15 * time.Second, 2, Load{Measured: 2, CPU: 2000}, 2, ""},
			{15 * time.Second, 2, Load{Measured: 2, CPU: 2000}, 3, ""}}},
		"fewer after a window": {scaled(1, 10, 0, time.Minute), []look{{0, 4, Load{Measured: 4, CPU: 100}, 4, "1, fewer, are not wanted for 1m0s yet"}, {30 * time.Second, 4, Load{Measured: 4, CPU: 100}, 4, ""},
			{30 * time.Second, 4, Load{Measured: 4, CPU: 100}, 2, ""}, {5 * time.Second, 2, Load{Measured: 2, CPU: 100}, 1, ""}}},
		"what was wanted within the window": {scaled(1, 10, 0, time.Minute), []look{{0, 4, Load{Measured: 4, CPU: 100}, 4, ""}, {30 * time.Second, 4, Load{Measured: 4, CPU: 2500}, 4, ""}, {30 * time.Second, 4, Load{Measured: 4, CPU: 100}, 4, ""}}},
		"what is not measured is busy":      {scaled(1, 10, 0, 0), []look{{0, 4, Load{Measured: 1, CPU: 100}, 4, ""}, {time.Minute, 4, Load{Measured: 2, CPU: 100}, 3, ""}}},
		"nothing is known":                  {scaled(1, 10, 0, 0), []look{{0, 4, Load{}, 4, "nothing is known of the load yet"}}},
		"limits":                            {scaled(2, 5, 0, 0), []look{{0, 1, Load{}, 2, "there are to be 2 to 5"}, {0, 9, Load{}, 5, ""}, {time.Minute, 5, Load{Measured: 5, CPU: 9000}, 5, "at most 5 are allowed"}, {time.Minute, 2, Load{Measured: 2, CPU: 0}, 2, "at least 2"}}},
		"a step at a time":                  {scaled(1, 1000, 0, 0), []look{{0, 100, Load{Measured: 100, CPU: 1e6}, 200, ""}, {time.Minute, 2, Load{Measured: 2, CPU: 1e6}, 6, ""}}},
		"the clock is set back":             {scaled(1, 10, 0, time.Minute), []look{{0, 4, Load{Measured: 4, CPU: 100}, 4, ""}, {-24 * time.Hour, 4, Load{Measured: 4, CPU: 100}, 4, ""}, {time.Minute, 4, Load{Measured: 4, CPU: 100}, 2, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			var s Scaler
			now := begin
			for n, l := range c.looks {
				now = now.Add(l.after)
				lo, hi := c.spec.Scale.Limits()
				got := s.Want(now, c.spec, lo, hi, l.current, l.l)
				if why := s.Why(); got != l.want || !strings.Contains(why, l.why) {
					t.Errorf("look %d: %d of %d, %q; expected %d, %q", n, got, l.current, why, l.want, l.why)
				}
			}
		})
	}
}

// TestDemandOfIngresses asks what counts of what comes by ingresses: of several targets the one that asks for most.
func TestDemandOfIngresses(t *testing.T) {
	requests, queue, latency, share := 10.0, 2.0, spec.Duration(100*time.Millisecond), 0.5
	for _, c := range []struct {
		t      spec.ScaleTarget
		l      Load
		demand float64
		why    string
	}{
		{spec.ScaleTarget{Requests: &requests}, Load{Requests: 35}, 3.5, "requests: 35.0 a second of 10"},
		{spec.ScaleTarget{Queue: &queue}, Load{Active: 9}, 4.5, "queue: 9 requests under way of 2"},
		{spec.ScaleTarget{Latency: &latency}, Load{Measured: 3, Requests: 1, Ms: 150}, 4.5, "latency: 150 ms of 100"},
		{spec.ScaleTarget{Latency: &latency}, Load{Measured: 3, Requests: 1, Ms: 5000}, 6, "latency: 5000 ms of 100"},
		{spec.ScaleTarget{Latency: &latency}, Load{Measured: 3, Ms: 5000}, 0, "latency"},
		{spec.ScaleTarget{CPU: &share, Requests: &requests, Queue: &queue}, Load{Measured: 1, CPU: 100, Requests: 5, Active: 3}, 1.5, "queue"},
		{spec.ScaleTarget{CPU: &share, Requests: &requests, Queue: &queue}, Load{Measured: 1, CPU: 800, Requests: 5, Active: 3}, 1.6, "cpu"},
		{spec.ScaleTarget{Requests: &requests}, Load{Measured: 2, CPU: 1900, Requests: 5}, 2.375, "its saturation point: 1900m of 800m"},
	} {
		spec := scaled(1, 9, 0, 0)
		spec.Scale.Target = c.t
		if d, why, ok := demandOf(spec, c.l); !ok || math.Abs(d-c.demand) > 1e-9 || !strings.HasPrefix(why, c.why) {
			t.Errorf("%+v: %g, %q; expected %g, %q", c.l, d, why, c.demand, c.why)
		}
	}
}

// A service that may have no instance has none when nobody has asked for it all through the window, and one as soon as something
// waits for it. What nobody counts is no reason.
func TestSleep(t *testing.T) {
	svc := scaled(0, 4, 0, time.Minute)
	svc.Ingress = []spec.Ingress{{Port: "http"}}
	var s Scaler
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	current := 3
	look := func(l Load, long time.Duration) {
		t.Helper()
		for end := now.Add(long); now.Before(end); now = now.Add(ScaleEvery) {
			current = s.Want(now, svc, 0, 4, current, l)
		}
	}
	look(Load{Measured: 3, CPU: 1500}, 5*time.Minute)
	if current != 3 {
		t.Errorf("%d of 3, and nobody knows whether somebody asks: %s", current, s.Why())
	}
	look(Load{Measured: 3, CPU: 1500, Told: true, Requests: 0.01}, 5*time.Minute)
	if current != 3 {
		t.Errorf("%d of 3 that are in use: %s", current, s.Why())
	}
	look(Load{Measured: 3, CPU: 100, Told: true}, 50*time.Second)
	if current != 3 {
		t.Errorf("%d of 3 within the window: %s", current, s.Why())
	}
	look(Load{Measured: 3, CPU: 100, Told: true}, 5*time.Minute)
	if current != 0 || !strings.Contains(s.Why(), "sleeps") {
		t.Errorf("%d, and nobody asks: %s", current, s.Why())
	}
	look(Load{Told: true}, time.Hour)
	if current != 0 {
		t.Errorf("%d, and nobody asks: %s", current, s.Why())
	}
	look(Load{Told: true, Waiting: true}, ScaleEvery)
	if current != 1 {
		t.Errorf("%d, and somebody waits: %s", current, s.Why())
	}
	look(Load{Told: true, Waiting: true}, 10*time.Minute) // it takes long to start
	look(Load{Measured: 1, Told: true}, 50*time.Second)
	if current != 1 {
		t.Errorf("%d, woken just now: %s", current, s.Why())
	}
	// One that keeps an instance is not concerned.
	svc = scaled(1, 4, 0, time.Minute)
	s = Scaler{}
	for range 100 {
		now = now.Add(ScaleEvery)
		current = s.Want(now, svc, 1, 4, current, Load{Measured: 1, Told: true})
	}
	if current != 1 {
		t.Errorf("%d: %s", current, s.Why())
	}
}
