package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/wire"
)

// PluginHost runs the site's scheduling plugins.
type PluginHost interface {
	// List gives the plugins that work now.
	List() []core.Plugin
	// Ask asks the plugins named, in bounded time. It gives one answer each, in that order.
	Ask(ctx context.Context, names []string, q sched.PluginQuery) []wire.PluginAnswer
	// Watch calls changed, from one goroutine, at the start and whenever List changes, until ctx ends.
	Watch(ctx context.Context, changed func())
}

// answerer finds out, beside the loop of one life, what the core asks of the world outside.
type answerer struct {
	s     *Server
	work  *tier.Work
	loop  *loop.Loop
	certs *certifier
	busy  chan struct{} // bounds the questions under way
}

// questionsAtOnce bounds the questions under way; the others wait, and may find their deadline past.
const questionsAtOnce = 32

func newAnswerer(ctx context.Context, s *Server, l *loop.Loop) *answerer {
	a := &answerer{s: s, work: tier.NewWork(ctx), loop: l, busy: make(chan struct{}, questionsAtOnce)}
	a.certs = newCertifier(s.opt.ACME, s.opt.Admission.Certificates.Directory, a.work, func(msg any) { l.Post(msg) }, s.opt.Log)
	if h := s.opt.Plugins; h != nil {
		a.work.Go(func() {
			h.Watch(a.work.Ctx, func() { l.Post(core.SetPlugins{List: h.List()}) })
		})
	}
	return a
}

// begin answers one question in a goroutine of its own.
func (a *answerer) begin(answer func(ctx context.Context) any) {
	a.work.Go(func() {
		select {
		case a.busy <- struct{}{}:
		case <-a.work.Ctx.Done():
			return
		}
		defer func() { <-a.busy }()
		defer panics.Catch(a.s.opt.Log, "an answer for the core") // which stays without one until the question's deadline
		a.loop.Post(answer(a.work.Ctx))
	})
}

func (a *answerer) act(action any) {
	switch q := action.(type) {
	case core.Measure:
		a.begin(func(ctx context.Context) any { return a.measure(ctx, q) })
	case core.OrderTaken:
		a.work.Go(func() { a.s.taken(q) })
	case core.AskWitness:
		a.begin(func(ctx context.Context) any {
			return core.Witnessed{Suspect: q.Suspect, Witness: q.Witness, Reached: a.witness(ctx, q)}
		})
	case core.Appraise:
		a.begin(func(ctx context.Context) any { return core.Appraised{Name: q.Name, RTT: a.appraise(ctx, q.Name)} })
	case core.OrderCertificate:
		a.certs.order(q)
	case core.ChallengeAnswered:
		a.certs.answered(q.Token)
	case core.Disconnect:
		a.s.Disconnect(q.Name)
	case core.TakeSnapshot: // takes as long as it likes, and the core bounds how many there are
		a.work.Go(func() {
			end := core.EndSnapshot{ID: q.ID, Err: "the cluster's orchestrator failed at it"}
			defer func() { a.loop.Post(end) }()
			defer panics.Catch(a.s.opt.Log, "a snapshot of a schedule")
			end = a.s.takeScheduled(a.work.Ctx, q)
		})
	case core.ExportSnapshot:
		a.work.Go(func() {
			end := core.EndExport{Snapshot: q.Snapshot, Err: "the cluster's orchestrator failed at it"}
			defer func() { a.loop.Post(end) }()
			defer panics.Catch(a.s.opt.Log, "an export of a schedule")
			end = export(a.work.Ctx, a.s, q)
		})
	case core.Score:
		a.begin(func(ctx context.Context) any {
			ctx, cancel := context.WithTimeout(ctx, sched.PluginDeadline)
			defer cancel()
			return core.Scored{ID: q.ID, Round: q.Round, Answers: a.s.opt.Plugins.Ask(ctx, q.Plugins, q.Query)}
		})
	default:
		panic(fmt.Sprintf("a cluster has no action %T", action))
	}
}

// measure has every worker measure every target at the same time.
func (a *answerer) measure(ctx context.Context, q core.Measure) core.Measured {
	ctx, cancel := context.WithTimeout(ctx, questions.MeasureTime)
	defer cancel()
	out := core.Measured{ID: q.ID, Round: q.Round, RTT: make([]map[string]float64, len(q.Targets))}
	for i := range out.RTT {
		out.RTT[i] = map[string]float64{}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, w := range q.Workers {
		wg.Go(func() {
			m, err := a.ask(ctx, w, q.Targets)
			if err != nil {
				a.s.opt.Log.Debug("measure", "worker", w, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, ms := range m {
				if i < len(q.Targets) && ms > 0 {
					out.RTT[i][w] = ms
				}
			}
		})
	}
	wg.Wait()
	return out
}

// witness has a worker try to reach another one.
func (a *answerer) witness(ctx context.Context, q core.AskWitness) bool {
	ctx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	var reached bool
	err := a.get(ctx, q.Witness, "/reach?"+url.Values{"target": {q.Target}, "peer": {strconv.FormatUint(uint64(q.Peer), 10)},
		"wait": {(q.Wait * 4 / 5).String()}}.Encode(), &reached)
	if err != nil {
		a.s.opt.Log.Debug("ask a witness", "worker", q.Witness, "about", q.Suspect, "err", err)
	}
	return err == nil && reached
}

// appraise measures the round trip on a worker's own connection; 0: it gave none.
func (a *answerer) appraise(ctx context.Context, name string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, questions.MeasureTime)
	defer cancel()
	if down := a.s.Down(); down != nil {
		return down.RTT(ctx, name)
	}
	return 0
}

// ask has one worker measure the round trips to the targets, in milliseconds; 0 stands for no answer.
func (a *answerer) ask(ctx context.Context, worker string, targets []string) (ms []float64, err error) {
	return ms, a.get(ctx, worker, "/measure?"+url.Values{"target": targets}.Encode(), &ms)
}

// get asks a worker over a stream, and reads its answer from JSON.
func (a *answerer) get(ctx context.Context, worker, path string, into any) error {
	return a.s.askWorker(ctx, worker, path, 64<<10, into)
}

// askWorker asks a worker over a stream, and reads its answer of at most so many bytes from JSON.
func (s *Server) askWorker(ctx context.Context, worker, path string, most int64, into any) error {
	down := s.Down()
	if down == nil {
		return skerry.Errorf(skerry.CodeUnavailable, "the role is starting")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://child"+path, nil)
	if err != nil {
		return err
	}
	res, err := down.RoundTripper(worker).RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("worker %s answers %s", worker, res.Status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("worker %s: %w", worker, err)
	}
	return nil
}

// serveCheckpoint passes a worker's question for a state on. What comes back only the worker can read that has the key.
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, checkpointPath)
	to := tier.PeerOf(r)
	worker, err := tier.View(r.Context(), s.Role, func(c *core.Core) (string, error) { return c.Checkpoint(skerry.InstanceID(id), to) })
	if r.Method != http.MethodGet {
		err = skerry.Errorf(skerry.CodeInvalid, "a state is asked for by GET")
	}
	s.Proxy(w, r, worker, "/instances/"+id+"/checkpoint", err)
}

const checkpointPath = "/checkpoint/"
