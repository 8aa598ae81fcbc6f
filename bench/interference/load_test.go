package interference

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// model is a service of some servers that each take the same time for a request, in turn.
type model struct {
	turns chan struct{}
	takes time.Duration
}

func newModel(servers int, takes time.Duration) *model {
	return &model{make(chan struct{}, servers), takes}
}

func (m *model) send(ctx context.Context) (Answer, error) {
	select {
	case m.turns <- struct{}{}:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	time.Sleep(m.takes)
	<-m.turns
	return Answer{Load: 0.001, Processing: m.takes.Seconds() - 0.001, Total: m.takes.Seconds()}, nil
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// A service that takes 50 ms is measured as such, however many requests are in it.
func TestKnownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator{rate: 100, time: 2 * time.Second, timeout: time.Second}
		shots, err := g.run(t.Context(), newModel(100, 50*time.Millisecond).send)
		if err != nil {
			t.Fatal(err)
		}
		o := g.fold(shots)
		if o.Sent != 200 || o.Success != 100 || !near(o.Latency.P50, 50) || !near(o.Latency.P99, 50) || !near(o.Application.Total, 50) || !near(o.Overhead, 0) || o.Invalid != "" {
			t.Errorf("%+v %+v", o, o.Latency)
		}
		if !near(o.Throughput, 200/2.04) { // the last is due after 1.99 s
			t.Error(o.Throughput)
		}
	})
}

// A service that stalls does not stop the load: what was due meanwhile waited as long as it did. A closed loop would have one slow request.
func TestServiceStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		send := func(context.Context) (Answer, error) {
			if at := time.Since(began); at >= time.Second && at < 2*time.Second {
				time.Sleep(2*time.Second - at)
			}
			return Answer{}, nil
		}
		g := generator{rate: 10, time: 3 * time.Second, timeout: 5 * time.Second}
		shots, err := g.run(t.Context(), send)
		if err != nil {
			t.Fatal(err)
		}
		o := g.fold(shots)
		if o.Invalid != "" || o.Success != 100 || !near(o.Latency.Max, 1000) || !near(o.Latency.Mean, (1000+900+800+700+600+500+400+300+200+100)/30.0) {
			t.Errorf("%+v %+v", o, o.Latency)
		}
	})
}

// A generator that stalls is found: the run is invalid, and what it was late is in the latencies.
func TestGeneratorStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		g := generator{rate: 10, time: 3 * time.Second, timeout: 5 * time.Second, pause: func(ctx context.Context, until time.Time) {
			sleep(ctx, until)
			if at := time.Since(began); at >= time.Second && at < 1500*time.Millisecond {
				time.Sleep(1500*time.Millisecond - at)
			}
		}}
		shots, err := g.run(t.Context(), func(context.Context) (Answer, error) { return Answer{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		o := g.fold(shots)
		if !near(o.Late, 100*5/30.0) || !strings.Contains(o.Invalid, "16.7 %") || !near(o.Latency.Max, 500) {
			t.Errorf("%+v %+v", o, o.Latency)
		}
	})
}

// Requests without an answer are no successes, and do not make the latency better.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		g := generator{rate: 10, time: 10 * time.Second, timeout: time.Second}
		shots, err := g.run(t.Context(), func(ctx context.Context) (Answer, error) {
			n := asked.Add(1)
			if n%4 == 0 {
				return Answer{}, errors.New("refused")
			}
			if n%4 == 1 {
				<-ctx.Done()
				return Answer{}, ctx.Err()
			}
			time.Sleep(20 * time.Millisecond)
			return Answer{Total: 0.005}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		o := g.fold(shots)
		if !near(o.Success, 50) || !near(o.Latency.Mean, 20) || !near(o.Overhead, 15) || !near(o.Throughput, 5) || o.Error != context.DeadlineExceeded.Error() {
			t.Errorf("%+v %+v", o, o.Latency)
		}
		if why := o.full(10, 1000); why != "50.0 % succeeded" {
			t.Error(why)
		}
		none := g.fold([]shot{{err: errors.New("refused")}})
		if none.Latency != nil || none.Success != 0 || none.full(1, 1000) == "" {
			t.Errorf("%+v", none)
		}
	})
}

// Nearest ranks are interpolated between.
func TestPercentiles(t *testing.T) {
	g := generator{rate: 1000, time: time.Second}
	var shots []shot
	for i := range 101 {
		shots = append(shots, shot{latency: time.Duration(100-i) * time.Millisecond})
	}
	l := g.fold(shots).Latency
	if !near(l.P50, 50) || !near(l.P90, 90) || !near(l.P99, 99) || !near(l.Max, 100) || !near(l.Mean, 50) {
		t.Errorf("%+v", l)
	}
}

// The search finds where a model service is full, from below and from above, in all three ways of being full.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		start, p99 float64
		timeout    time.Duration
	}{{1, 500, time.Minute}, {300, 500, time.Minute}, {7, 1e9, time.Minute}, {7, 1e9, 200 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			s, err := search(c.start, c.p99, func(rate float64) (Outcome, error) {
				g := generator{rate: rate, time: 30 * time.Second, timeout: c.timeout}
				shots, err := g.run(t.Context(), newModel(4, 100*time.Millisecond).send) // 40 per second
				return g.fold(shots), err
			})
			if err != nil || s.Stopped != "" || s.Low < 37 || s.Low > 41.5 || s.High < 40 || !narrow(s.Low, s.High) || s.High <= s.Low {
				t.Errorf("%+v: %+v %v", c, s, err)
			}
		})
	}
}

// What cannot be searched is told, not guessed.
func TestSearchStops(t *testing.T) {
	runs := 0
	ends := func(o Outcome, start float64) Saturation {
		runs = 0
		s, err := search(start, 100, func(float64) (Outcome, error) { runs++; return o, nil })
		if err != nil {
			t.Error(err)
		}
		return s
	}
	fast := Outcome{Success: 100, Throughput: 1e9, Latency: &Latency{P99: 1}}
	if s := ends(fast, 1); s.Low != highest || s.High != 0 || s.Stopped == "" {
		t.Errorf("%+v", s)
	}
	if s := ends(Outcome{}, 8); s.Low != 0 || s.High != lowest || s.Stopped == "" {
		t.Errorf("%+v", s)
	}
	fast.Invalid = "late"
	if s := ends(fast, 8); s.Low != 0 || runs != 2 || !strings.Contains(s.Stopped, "8 requests") {
		t.Errorf("%+v", s)
	}
	if _, err := search(1, 1, func(float64) (Outcome, error) { return Outcome{}, errors.New("broken") }); err == nil {
		t.Error("went on")
	}
}
