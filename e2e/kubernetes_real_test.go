//go:build linux

package e2e

import (
	"net/http"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/worker/pods/podstest"
)

// The same with a real API server, etcd and scheduler, and the rights of the manifest that is shipped. The kubelets are stand-ins.
func TestRealKubernetesNodes(t *testing.T) {
	testenv.Long(t, "TestKubernetesNodes")
	k := testenv.NewKubernetes(t, "..")
	const namespace = "/api/v1/namespaces/skerry"
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	k.Apply("../packaging/kubernetes/skerry-kubernetes.yaml", map[string]string{"Namespace": "/api/v1/namespaces",
		"ServiceAccount": namespace + "/serviceaccounts", "ClusterRole": rbac + "/clusterroles",
		"ClusterRoleBinding": rbac + "/clusterrolebindings", "Role": rbac + "/namespaces/skerry/roles",
		"RoleBinding": rbac + "/namespaces/skerry/rolebindings", "Secret": namespace + "/secrets",
		"PersistentVolumeClaim": namespace + "/persistentvolumeclaims", "Deployment": "/apis/apps/v1/namespaces/skerry/deployments"})
	// That is what a controller does, and none runs here.
	k.Do(http.MethodPost, namespace+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "default"}})
	answer := k.Do(http.MethodPost, namespace+"/serviceaccounts/skerry-kubernetes/token", map[string]any{"spec": map[string]any{}})
	kubernetesNodes(t, kubernetes{url: k.URL, client: k.Client,
		kubeconfig: podstest.Kubeconfig(t, t.TempDir(), k.URL, k.CA, podstest.Text(answer, "status", "token"))})
}
