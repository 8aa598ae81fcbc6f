package interference

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"skerry.dev/skerry/bench/report"
)

// Answer is what the service tells of a request: seconds.
type Answer struct {
	Load       float64 `json:"load"`
	Processing float64 `json:"processing"`
	Total      float64 `json:"total"`
	Sum        string  `json:"sum"`
}

// Limits of what counts as a load that was kept to.
const (
	// late is how much after its time a request may be sent.
	late = 10 * time.Millisecond
	// maxLate is how many may be later, in percent, before the run says more of the generator than of the service.
	maxLate = 1.0
)

// generator sends requests at a fixed rate whether or not earlier ones came back: an open loop.
type generator struct {
	rate    float64       // requests per second
	time    time.Duration // the last is due before its end
	timeout time.Duration // of one request, from when it was due
	// pause sleeps; nil: until then.
	pause func(ctx context.Context, until time.Time)
}

// shot is one request.
type shot struct {
	due     time.Duration // since the load began
	late    time.Duration // that it was sent
	latency time.Duration // from when it was due
	answer  Answer
	err     error
}

func sleep(ctx context.Context, until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// run sends, and returns when every request was answered or given up. When ctx ends it sends no more, and its error is that of ctx.
func (g generator) run(ctx context.Context, send func(context.Context) (Answer, error)) ([]shot, error) {
	pause := g.pause
	if pause == nil {
		pause = sleep
	}
	shots := make([]shot, max(1, int(g.rate*g.time.Seconds()+1e-9)))
	began := time.Now()
	var wg sync.WaitGroup
	for i := range shots {
		s := &shots[i]
		s.due = time.Duration(float64(i) / g.rate * float64(time.Second))
		due := began.Add(s.due)
		pause(ctx, due)
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			s.late = time.Since(due)
			ctx, cancel := context.WithDeadline(ctx, due.Add(g.timeout))
			defer cancel()
			s.answer, s.err = send(ctx)
			s.latency = time.Since(due)
		})
	}
	wg.Wait()
	return shots, ctx.Err()
}

// Latency is in milliseconds.
type Latency struct {
	Mean float64
	P50  float64
	P90  float64
	P99  float64
	Max  float64
}

// Outcome is what was found of a load.
type Outcome struct {
	Sent       int
	Success    float64 // percent of those that were sent
	Throughput float64 // answers per second, until the last came back
	// Latency is that of the answers, from when their requests were due; nil where there were none.
	Latency *Latency
	// Application is what the service itself tells of them on average, in ms, and Overhead what is left: queues, network, isolation.
	Application *Application
	Overhead    float64
	Late        float64 // percent sent more than 10 ms after their time
	// Invalid says why the run tells nothing of the service.
	Invalid string
	// Error is that of the first request without an answer.
	Error string
}

// Application has the service's own times in ms, means.
type Application struct {
	Load       float64
	Processing float64
	Total      float64
}

// fold computes what a load found. None of shots is older than the first.
func (g generator) fold(shots []shot) Outcome {
	o := Outcome{Sent: len(shots)}
	var app Application
	var latencies []float64
	end, overdue := time.Duration(float64(len(shots))/g.rate*float64(time.Second)), 0
	for _, s := range shots {
		if s.late > late {
			overdue++
		}
		if s.err != nil {
			if o.Error == "" {
				o.Error = s.err.Error()
			}
			continue
		}
		end = max(end, s.due+s.latency)
		latencies = append(latencies, ms(s.latency))
		app.Load += 1000 * s.answer.Load
		app.Processing += 1000 * s.answer.Processing
		app.Total += 1000 * s.answer.Total
	}
	o.Late = 100 * float64(overdue) / float64(len(shots))
	if o.Late > maxLate {
		o.Invalid = fmt.Sprintf("%.1f %% of the requests were sent more than %v late; up to %g %% may be", o.Late, late, maxLate)
	}
	n := float64(len(latencies))
	o.Success, o.Throughput = 100*n/float64(len(shots)), n/end.Seconds()
	if n > 0 {
		l := Latency{P50: report.Quantile(latencies, 0.5), P90: report.Quantile(latencies, 0.9), P99: report.Quantile(latencies, 0.99),
			Max: slices.Max(latencies)}
		for _, v := range latencies {
			l.Mean += v / n
		}
		app.Load, app.Processing, app.Total = app.Load/n, app.Processing/n, app.Total/n
		o.Latency, o.Application, o.Overhead = &l, &app, l.Mean-app.Total
	}
	return o
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
