package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// restoreWait is how long the instance of volumes may take to end before they are restored.
const (
	restoreWait  = 5 * time.Minute
	restoreAgain = 50 * time.Millisecond
)

// Snapshots lists the snapshots at the site.
func (s *Server) Snapshots(ctx context.Context) ([]spec.Snapshot, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]spec.Snapshot, error) { return c.Snapshots(), nil })
}

// TakeSnapshot has the worker of local volumes copy them.
func (s *Server) TakeSnapshot(ctx context.Context, v spec.VolumeClaim, r spec.SnapshotRequest, actor string) (spec.Snapshot, error) {
	m := core.BeginSnapshot{ID: newSnapshotID(v), Claim: v, Actor: actor}
	return s.makeSnapshot(ctx, m, func(ctx context.Context, plan core.SnapshotPlan) (*http.Request, error) {
		plan.MaxPause = cmp.Or(r.MaxPause, plan.MaxPause)
		return copyRequest(ctx, m.ID, v, plan)
	})
}

// copyRequest is what has a worker copy volumes.
func copyRequest(ctx context.Context, id spec.SnapshotID, v spec.VolumeClaim, plan core.SnapshotPlan) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"claim": v, "most": plan.Most, "maxPause": plan.MaxPause})
	if err != nil {
		return nil, err
	}
	return http.NewRequestWithContext(ctx, http.MethodPost, snapshotURL(id, "", nil), bytes.NewReader(body))
}

// takeScheduled takes a snapshot that the core has begun, and says what came of it.
func (s *Server) takeScheduled(ctx context.Context, q core.TakeSnapshot) (end core.EndSnapshot) {
	end = core.EndSnapshot{ID: q.ID, Info: new(spec.Snapshot)}
	req, err := copyRequest(ctx, q.ID, q.Claim, q.Plan)
	if err == nil {
		err = s.askSnapshot(q.Plan.Worker, req, end.Info)
	}
	if err != nil {
		end.Err = err.Error()
	}
	return end
}

// ImportSnapshot keeps a stream as a snapshot of volumes, on a worker, or the one with the most room. Its length is below 1 if nobody
// knows it.
func (s *Server) ImportSnapshot(ctx context.Context, v spec.VolumeClaim, org, worker, actor string, from io.Reader, length int64) (
	spec.Snapshot, error,
) {
	m := core.BeginSnapshot{ID: newSnapshotID(v), Claim: v, Actor: actor, Import: true, Worker: worker, Org: org,
		Length: skerry.Bytes(max(0, length))}
	return s.makeSnapshot(ctx, m, func(ctx context.Context, plan core.SnapshotPlan) (*http.Request, error) {
		q := url.Values{"most": {strconv.FormatInt(int64(plan.Most), 10)}}
		return http.NewRequestWithContext(ctx, http.MethodPut, snapshotURL(m.ID, "", q), io.NopCloser(from))
	})
}

func newSnapshotID(v spec.VolumeClaim) spec.SnapshotID {
	return spec.NewSnapshotID(v, strings.ToLower(rand.Text()[:8]))
}

func snapshotURL(id spec.SnapshotID, rest string, q url.Values) string {
	u := "http://child/snapshots/" + url.PathEscape(string(id)) + rest
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

// makeSnapshot notes a snapshot, has a worker make it, and notes what came of that, whatever becomes of who asked.
func (s *Server) makeSnapshot(ctx context.Context, begin core.BeginSnapshot,
	ask func(ctx context.Context, plan core.SnapshotPlan) (*http.Request, error),
) (out spec.Snapshot, err error) {
	last := context.WithoutCancel(ctx) // what has begun is to end, also if who asked has gone by the time the core has noted it
	value, err := s.Role.Do(last, begin)
	if err != nil {
		return out, err
	}
	plan, _ := value.(core.SnapshotPlan)
	info := new(spec.Snapshot)
	req, err := ask(ctx, plan)
	if err == nil {
		err = s.askSnapshot(plan.Worker, req, info)
	}
	end := core.EndSnapshot{ID: begin.ID, Info: info}
	if err != nil {
		end.Err = err.Error()
	}
	if _, e := s.Role.Do(last, end); err == nil {
		err = e
	}
	if err != nil {
		return out, err
	}
	return tier.View(last, s.Role, func(c *core.Core) (spec.Snapshot, error) {
		if made, ok := c.Snapshot(begin.ID); ok {
			return made, nil
		}
		return out, skerry.Errorf(skerry.CodeConflict, "snapshot %s was deleted while it was taken, or worker %s described it implausibly",
			begin.ID, plan.Worker)
	})
}

// askSnapshot asks a worker for something that may take long.
func (s *Server) askSnapshot(worker string, req *http.Request, into any) error {
	res, err := s.reachWorker(worker, req)
	if _, refused := errors.AsType[*skerry.Error](err); err != nil && !refused {
		return &tier.AnswerLost{Err: err} // it was on its way
	}
	if err != nil {
		return err
	}
	return tier.ReadLater(res, into)
}

func (s *Server) reachWorker(worker string, req *http.Request) (*http.Response, error) {
	down := s.Down()
	if down == nil {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "the role is starting").WithHint("try again in a moment")
	}
	return down.RoundTripper(worker).RoundTrip(req)
}

// DeleteSnapshot deletes a snapshot.
func (s *Server) DeleteSnapshot(ctx context.Context, id spec.SnapshotID, actor string) error {
	_, err := s.Role.Do(ctx, core.DeleteSnapshot{ID: id, Actor: actor})
	return err
}

// OpenSnapshot gives the stream of a snapshot and its length; the caller closes it.
func (s *Server) OpenSnapshot(ctx context.Context, id spec.SnapshotID) (io.ReadCloser, int64, error) {
	snap, err := tier.View(ctx, s.Role, func(c *core.Core) (spec.Snapshot, error) { return c.Readable(id) })
	if err != nil {
		return nil, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, snapshotURL(id, "", nil), nil)
	if err != nil {
		return nil, 0, err
	}
	res, err := s.reachWorker(string(snap.Worker), req)
	if err != nil {
		return nil, 0, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, 0, tier.ReadProblem(res)
	}
	return &steady{ReadCloser: res.Body, worker: string(snap.Worker)}, int64(snap.Size), nil
}

// RestoreSnapshot makes volumes what a snapshot has: those it was taken of or, if clone says so, new ones.
func (s *Server) RestoreSnapshot(ctx context.Context, id spec.SnapshotID, to spec.VolumeClaim, clone bool, worker,
	actor string) (view.VolumeView, error) {
	last := context.WithoutCancel(ctx) // as with snapshots
	value, err := s.Role.Do(last, core.BeginRestore{ID: id, To: to, Clone: clone, Worker: worker})
	if err != nil {
		return view.VolumeView{}, err
	}
	end := core.EndRestore{RestorePlan: value.(core.RestorePlan), Actor: actor}
	end.Took, err = s.restore(ctx, end.RestorePlan)
	if err != nil {
		end.Err = err.Error()
	}
	if lost, ok := errors.AsType[*tier.AnswerLost](err); ok {
		end.Lost = true
		err = skerry.Errorf(skerry.CodeUnavailable, "nobody knows whether volume %s is restored, because the answer of worker %s is lost: %w",
			to, end.Worker, lost).WithHint("restore it again, which is safe, or look into it when its instance runs")
	}
	if _, e := s.Role.Do(last, end); err == nil {
		err = e
	}
	if err != nil {
		return view.VolumeView{}, err
	}
	return tier.View(last, s.Role, func(c *core.Core) (view.VolumeView, error) {
		for _, v := range c.Volumes() {
			if v.Claim() == to {
				return v, nil
			}
		}
		return view.VolumeView{}, skerry.Errorf(skerry.CodeConflict, "volume %s was deleted meanwhile", to)
	})
}

// restore waits until nothing has the volumes, and has their worker unpack the snapshot. One that is elsewhere comes
// through here. It returns what volumes without a size took.
func (s *Server) restore(ctx context.Context, plan core.RestorePlan) (skerry.Bytes, error) {
	if err := s.awaitIdle(ctx, plan.To); err != nil {
		return 0, err
	}
	// From here on what becomes of who asked is not what becomes of the volumes: what a worker has would count for nobody.
	ctx = context.WithoutCancel(ctx)
	id := plan.Snapshot.ID
	q := url.Values{"claim": {plan.To.Key()}, "sha256": {plan.Snapshot.SHA256}, "most": {strconv.FormatInt(int64(plan.Most), 10)}}
	var body io.Reader
	if plan.Worker != string(plan.Snapshot.Worker) {
		q.Set("stream", "true")
		from, _, err := s.OpenSnapshot(ctx, id)
		if err != nil {
			return 0, err
		}
		defer from.Close()
		body = from
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, snapshotURL(id, "/restore", q), body)
	if err != nil {
		return 0, err
	}
	var answer struct{ Took skerry.Bytes } // workers of earlier versions do not say it
	err = s.askSnapshot(plan.Worker, req, &answer)
	return answer.Took, err
}

// awaitIdle waits until no instance on a worker in touch has volumes.
func (s *Server) awaitIdle(ctx context.Context, v spec.VolumeClaim) error {
	ctx, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	for {
		idle, err := tier.View(ctx, s.Role, func(c *core.Core) (bool, error) { return c.Restorable(v), nil })
		if err == nil && idle {
			return nil
		}
		select {
		case <-time.After(restoreAgain):
		case <-ctx.Done():
			return skerry.Errorf(skerry.CodeUnavailable, "the instance that has volume %s has not ended", v).WithHint("nothing was changed; `skerry get instances` shows what it waits for")
		}
	}
}
