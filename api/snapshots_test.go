package api_test

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/spec"
)

// TestSnapshotsAreRefused: a root refers to the cluster; at a cluster what is not there, or not for the user, is refused by name before
// anything is asked of a worker. What works is shown by e2e.
func TestSnapshotsAreRefused(t *testing.T) {
	ctx := t.Context()
	claim := spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}}
	const none = spec.SnapshotID("shop-db-0-none")
	refused := func(what string, err error, code skerry.Code, hint string) {
		t.Helper()
		if e := skerry.AsError(err); err == nil || e.Code != code || !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: %v (%s), want %s with %q", what, err, e.Hint, code, hint)
		}
	}
	root := newRoot(t).admin()
	_, err := root.Snapshots(ctx, "")
	refused("listing at the root", err, skerry.CodeWrongTier, "cluster")
	_, err = root.TakeSnapshot(ctx, claim, 0)
	refused("taking at the root", err, skerry.CodeWrongTier, "cluster")
	_, err = root.ImportSnapshot(ctx, claim, "", strings.NewReader("x"), 1)
	refused("importing at the root", err, skerry.CodeWrongTier, "cluster")

	s := newCluster(t)
	c := s.admin()
	if list, err := c.Snapshots(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("%d snapshots, %v", len(list), err)
	}
	_, err = c.TakeSnapshot(ctx, claim, 0)
	refused("volumes that are not there", err, skerry.CodeNotFound, "get volumes")
	_, err = c.TakeSnapshot(ctx, claim, 2*time.Hour)
	refused("too long a pause", err, skerry.CodeInvalid, "30s")
	_, err = c.RestoreSnapshot(ctx, none, spec.RestoreRequest{})
	refused("restoring nothing", err, skerry.CodeNotFound, "volume snapshots")
	_, _, err = c.OpenSnapshot(ctx, none)
	refused("exporting nothing", err, skerry.CodeNotFound, "volume snapshots")
	refused("deleting nothing", c.DeleteSnapshot(ctx, none), skerry.CodeNotFound, "volume snapshots")
	_, err = c.ImportSnapshot(ctx, claim, "w9", strings.NewReader("x"), 1)
	refused("importing to nowhere", err, skerry.CodeNotFound, "get workers")
	_, err = c.ImportSnapshot(ctx, claim, "", strings.NewReader("x"), 1)
	refused("importing where there is no worker", err, skerry.CodeUnavailable, "get workers")
	other := claim
	other.Service.App.Namespace = "nobodys"
	_, err = c.ImportSnapshot(ctx, other, "", strings.NewReader("x"), 1)
	refused("importing for nobody", err, skerry.CodeNotFound, "namespaces")

	const password = "see-but-touch-not"
	if _, err := c.CreateUser(ctx, "vera", password, []auth.Grant{{Role: auth.RoleViewer, Org: auth.Any, Cluster: auth.Any}}); err != nil {
		t.Fatal(err)
	}
	vera := s.client("vera", password)
	if _, err := vera.Snapshots(ctx, ""); err != nil {
		t.Error(err)
	}
	_, err = vera.TakeSnapshot(ctx, claim, 0)
	refused("taking as a viewer", err, skerry.CodeForbidden, "role")
	_, err = vera.ImportSnapshot(ctx, claim, "", strings.NewReader("x"), 1)
	refused("importing as a viewer", err, skerry.CodeForbidden, "role")
	_, _, err = vera.OpenSnapshot(ctx, none)
	refused("exporting as a viewer", err, skerry.CodeForbidden, "role")
}
