//go:build linux

package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
)

// maxSnapshotAsk bounds what the cluster says with a request.
const maxSnapshotAsk = 64 << 10

// serveSnapshots answers what the cluster asks about snapshots:
//
//	POST /snapshots/ID           take one of volumes here (takeSnapshot)
//	GET  /snapshots/ID           its stream; of one that was damaged on the disk only as much as shows that
//	PUT  /snapshots/ID?most=N    keep a stream as one
//	POST /snapshots/ID/restore?claim=KEY&sha256=SUM[&most=N][&stream=true]    make volumes what it has, or the stream that comes along; those
//	                             without a size take at most N (0: what is free), and the answer says how much they took
func serveSnapshots(server *Server, w http.ResponseWriter, r *http.Request) error {
	name, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/snapshots/"), "/")
	id := spec.SnapshotID(name)
	if err := id.Check(); err != nil {
		return err
	}
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && what == "":
		var ask takeSnapshot
		if err := json.NewDecoder(io.LimitReader(r.Body, maxSnapshotAsk)).Decode(&ask); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "what is to be copied cannot be read: %v", err)
		}
		tier.Later(w, r, func(ctx context.Context) (any, error) { return take(ctx, server, id, ask) })
	case r.Method == http.MethodGet && what == "":
		return sendSnapshot(server, w, id)
	case r.Method == http.MethodPut && what == "":
		most, err := mostOf(query)
		if err != nil {
			return err
		}
		tier.Later(w, r, func(context.Context) (any, error) { return importSnapshot(server, id, r.Body, most) })
	case r.Method == http.MethodPost && what == "restore":
		claim, ok := spec.ParseVolumeKey(query.Get("claim"))
		if !ok {
			return skerry.Errorf(skerry.CodeInvalid, "claim %q is none", query.Get("claim"))
		}
		most, err := mostOf(query)
		if err != nil {
			return err
		}
		tier.Later(w, r, func(ctx context.Context) (any, error) {
			from := io.Reader(r.Body)
			if query.Get("stream") == "" {
				f, err := os.Open(filepath.Join(server.opt.snapshotDir(id), snapshotData))
				if err != nil {
					return nil, skerry.Errorf(skerry.CodeNotFound, "snapshot %s cannot be read on this worker: %v", id, err)
				}
				defer f.Close()
				from = f
			}
			took, err := restoreSnapshot(ctx, server, claim, from, query.Get("sha256"), most)
			return map[string]skerry.Bytes{"took": took}, err
		})
	default:
		return skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s %s", r.Method, r.URL.Path)
	}
	return nil
}

// mostOf reads how many bytes of the disk something may take; 0: what is free.
func mostOf(q url.Values) (skerry.Bytes, error) {
	most, err := strconv.ParseInt(cmp.Or(q.Get("most"), "0"), 10, 64)
	if err != nil || most < 0 {
		return 0, skerry.Errorf(skerry.CodeInvalid, "most %q is no number of bytes", q.Get("most"))
	}
	return skerry.Bytes(most), nil
}

func sendSnapshot(server *Server, w http.ResponseWriter, id spec.SnapshotID) error {
	snap, err := snapshotAt(server, id)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(server.opt.snapshotDir(id), snapshotData))
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && st.Size() != int64(snap.Size) {
		err = skerry.Errorf(skerry.CodeConflict, "snapshot %s is damaged: it has %d bytes, and had %d", id, st.Size(),
			int64(snap.Size)).WithHint("use another one")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/zstd")
	w.Header().Set("Content-Length", strconv.FormatInt(st.Size(), 10))
	if _, err := io.Copy(w, f); err != nil {
		panic(http.ErrAbortHandler) // a cut answer is no whole one
	}
	return nil
}
