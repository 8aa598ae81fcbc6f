package pods

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// sweepEvery is how often secrets that nobody uses are looked for, after the first time.
const sweepEvery = time.Hour

// sweepPage is how many secrets are asked for at once: each may have a megabyte, and an answer has at most answerMax bytes.
const sweepPage = 32

// sweep removes secrets of instances that no record has, at once and now and then until ctx ends: a life of this program may have ended
// after it had made one, and before its worker's core knew.
func (w *Worker) sweep(ctx context.Context) {
	for {
		err := persist(ctx, w.log, "a look for secrets that nobody uses", func() error { return w.dropSecrets(ctx) })
		if err != nil && ctx.Err() == nil {
			w.log.Warn("secrets that nobody uses stay", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
	}
}

// dropSecrets removes the secrets of this worker, by their labels, whose instance is not known here. One worker looks at a time: each
// answer may be large, and the API server reads the secrets of all for it.
func (w *Worker) dropSecrets(ctx context.Context) error {
	select {
	case w.fleet.sweeping <- struct{}{}:
		defer func() { <-w.fleet.sweeping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	style, client := &w.fleet.opt.Style, w.fleet.opt.Client
	query := url.Values{"limit": {fmt.Sprint(sweepPage)}, "labelSelector": {managedLabel + "=" + managedBy + "," + siteLabel + "=" +
		labelValue(style.Site) + "," + workerLabel + "=" + labelValue(w.name)}}
	for range pagesMost {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []secretObject `json:"items"`
		}
		if err := client.do(ctx, http.MethodGet, collection(secretPath(style.Namespace, "")), query, nil, &page); err != nil {
			return err
		}
		for i := range page.Items {
			if err := w.dropSecret(ctx, &page.Items[i].Metadata); err != nil {
				return err
			}
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
	return nil
}

func (w *Worker) dropSecret(ctx context.Context, meta *Meta) error {
	style, id := &w.fleet.opt.Style, skerry.InstanceID(meta.Annotations[instanceNote])
	ours := meta.Labels[managedLabel] == managedBy && meta.Labels[siteLabel] == labelValue(style.Site) &&
		meta.Labels[workerLabel] == labelValue(w.name) && meta.Name == filesName(id, w.name)
	w.mu.Lock()
	_, known := w.apps[id]
	w.mu.Unlock()
	if !ours || known || w.hasPod(id) {
		return nil
	}
	w.log.Info("a secret that nobody uses is removed", "instance", string(id), "secret", meta.Name)
	// One that is prepared meanwhile has another version by then.
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]string{"uid": meta.UID, "resourceVersion": meta.ResourceVersion}}
	err := w.fleet.opt.Client.do(ctx, http.MethodDelete, secretPath(style.Namespace, meta.Name), nil, body, nil)
	if absent(err) || status(err) == http.StatusConflict {
		return nil
	}
	return err
}

// hasPod reports whether there is a pod of an instance that has not ended. One that no record has may be wanted still: the store has lost
// records, and the site has not said yet what it wants here.
func (w *Worker) hasPod(id skerry.InstanceID) bool {
	return slices.ContainsFunc(w.fleet.ofWorker(w.name), func(p *Pod) bool {
		return p.Metadata.Annotations[instanceNote] == string(id) && Look(p, time.Now()).Stage != Ended
	})
}
