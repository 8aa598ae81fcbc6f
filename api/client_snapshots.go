package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

func volumePath(v spec.VolumeClaim) string {
	k, esc := v.Service, url.PathEscape
	return "/v1/volumes/" + esc(k.App.Namespace) + "/" + esc(k.App.Name) + "/" + esc(k.Service) + "/" + strconv.Itoa(v.Ordinal)
}

func snapshotPath(id spec.SnapshotID) string { return "/v1/snapshots/" + url.PathEscape(string(id)) }

// Snapshots lists the snapshots of a site, of one namespace if it is given.
func (c *Client) Snapshots(ctx context.Context, namespace string) ([]spec.Snapshot, error) {
	return list[spec.Snapshot](ctx, c, "/v1/snapshots", query("namespace", namespace))
}

// TakeSnapshot copies the local volumes of a replica, whose writers stand still for so long at most; 0: as long as the server has it.
func (c *Client) TakeSnapshot(ctx context.Context, v spec.VolumeClaim, maxPause time.Duration) (s spec.Snapshot, err error) {
	q := url.Values{}
	if maxPause > 0 {
		q.Set("maxPause", maxPause.String())
	}
	res, err := c.request(ctx, http.MethodPost, volumePath(v)+"/snapshots", q, nil, true)
	if err == nil {
		err = tier.ReadLater(res, &s)
	}
	return s, err
}

// DeleteSnapshot deletes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, id spec.SnapshotID) error {
	return c.do(ctx, http.MethodDelete, snapshotPath(id), nil, nil, nil)
}

// RestoreSnapshot makes volumes what a snapshot has.
func (c *Client) RestoreSnapshot(ctx context.Context, id spec.SnapshotID, r spec.RestoreRequest) (v view.VolumeView, err error) {
	res, err := c.request(ctx, http.MethodPost, snapshotPath(id)+"/restore", nil, r, true)
	if err == nil {
		err = tier.ReadLater(res, &v)
	}
	if lost, ok := errors.AsType[*tier.AnswerLost](err); ok {
		err = skerry.Errorf(skerry.CodeUnavailable, "nobody knows here whether the volume is restored: %w", lost).
			WithHint("the site goes on with it; `skerry get events` shows what came of it")
	}
	return v, err
}

// OpenSnapshot gives the stream of a snapshot, and its length; the caller closes it.
func (c *Client) OpenSnapshot(ctx context.Context, id spec.SnapshotID) (io.ReadCloser, int64, error) {
	res, err := c.request(ctx, http.MethodGet, snapshotPath(id)+"/content", nil, nil, true)
	if err != nil {
		return nil, 0, err
	}
	return res.Body, res.ContentLength, nil
}

// ImportSnapshot sends a stream that is to be a snapshot of local volumes, on a worker or, without its name, on any. Its
// length is -1 if it is not known; the site then reserves all that the organisation may use, until it is there.
func (c *Client) ImportSnapshot(ctx context.Context, volume spec.VolumeClaim, worker string, from io.Reader,
	length int64) (snap spec.Snapshot, err error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.url(volumePath(volume)+"/snapshots", query("worker", worker)),
		io.NopCloser(from))
	if err != nil {
		return snap, err
	}
	req.Header.Set("Content-Type", "application/zstd")
	req.ContentLength = length
	if _, err := c.sign(ctx, req, ""); err != nil {
		return snap, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return snap, ctx.Err()
		}
		return snap, c.unreachable(err)
	}
	if foreign(res) {
		defer res.Body.Close()
		return snap, readProblem(res)
	}
	return snap, tier.ReadLater(res, &snap)
}
