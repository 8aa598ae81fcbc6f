package api_test

import (
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// TestLabelClusters has operators of the root label clusters, with an audit, and applications select them; the cluster itself has no part
// in that, and refuses both.
func TestLabelClusters(t *testing.T) {
	s := newRoot(t)
	harbour := s.joined("harbour")
	ctx := t.Context()
	admin := s.admin()
	west := map[string]string{"region": "west"}
	wantCode(t, "a cluster that is not there", admin.LabelCluster(ctx, "moon", view.ClusterLabels{Set: west}), skerry.CodeNotFound, "moon")
	wantCode(t, "a bad label", admin.LabelCluster(ctx, "harbour", view.ClusterLabels{Set: map[string]string{"": "x"}}), skerry.CodeInvalid,
		"is no label")
	wantCode(t, "at the cluster", harbour.admin().LabelCluster(ctx, "harbour", view.ClusterLabels{Set: west}), skerry.CodeWrongTier)
	const manifest = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - {name: web, runtime: native, command: [/bin/true], placement: {clusterLabels: {region: west}}}
`
	_, err := admin.Apply(ctx, []byte(manifest), api.ApplyOptions{})
	wantCode(t, "no cluster of the group", err, skerry.CodeInvalid, "no cluster that may run it has the labels region=west")
	must(t, admin.LabelCluster(ctx, "harbour", view.ClusterLabels{Set: map[string]string{"region": "west", "ring": "1"}}))
	must(t, admin.LabelCluster(ctx, "harbour", view.ClusterLabels{Remove: []string{"ring"}}))
	_, err = admin.Apply(ctx, []byte(manifest), api.ApplyOptions{})
	must(t, err)
	_, err = harbour.admin().Apply(ctx, []byte(manifest), api.ApplyOptions{})
	wantCode(t, "an application of the cluster's own", err, skerry.CodeUnsupported, "does not know its labels")
	list, err := admin.Clusters(ctx)
	if err != nil || len(list) != 1 || spec.LabelText(list[0].Labels) != "region=west" {
		t.Errorf("clusters: got %+v, %v, want one with region=west", list, err)
	}
	records, err := admin.Audit(ctx, "", "", 0)
	if err != nil || !slices.ContainsFunc(records, func(r auth.AuditRecord) bool {
		return r.Operation == "label-cluster" && r.Object == "harbour" && r.User == auth.AdminUser
	}) {
		t.Errorf("audit: got %+v, %v, want label-cluster of harbour by %s", records, err, auth.AdminUser)
	}
}
