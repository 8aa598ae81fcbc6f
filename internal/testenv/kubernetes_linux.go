package testenv

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// Kubernetes is an API server and a scheduler of Kubernetes, with etcd. There is no controller, and no kubelet unless NewNode makes some.
type Kubernetes struct {
	URL    string
	CA     string       // file with the server's certificate
	Admin  string       // token of somebody who may do everything
	Client *http.Client // of theirs

	t         testing.TB
	programs  string     // directory with them
	authority *authority // of kubelets; nil: there are only stand-ins
}

// NewKubernetes starts one until the test ends: real programs, which scripts/kubernetes/build builds once. root is the way to the top of
// the repository from the package of the test. With kubelets it listens where these reach it, and they prove to each other who they are;
// the test is skipped where none can run.
func NewKubernetes(t testing.TB, root string, kubelets bool) *Kubernetes {
	t.Helper()
	host := "127.0.0.1"
	if kubelets {
		needNodes(t)
		host = KubernetesHost
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil { // of this network namespace
			t.Fatal(err)
		}
	}
	KubernetesAddress(t)
	programs, dir := buildTool(t, root, "kubernetes"), t.TempDir()
	etcd, peer, free := FreeAddr(t), FreeAddr(t), FreeAddr(t)
	port := free[len("127.0.0.1:"):]
	addr := host + ":" + port
	serve(t, etcd, filepath.Join(programs, "etcd"), nil, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", "http://"+etcd,
		"--advertise-client-urls", "http://"+etcd, "--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "default=http://"+peer)
	made := &Kubernetes{t: t, URL: "https://" + addr, CA: filepath.Join(dir, "apiserver.crt"), Admin: "admin-of-the-test",
		programs: programs}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	accounts := filepath.Join(dir, "accounts.pem")
	for path, text := range map[string][]byte{
		accounts:                         pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		filepath.Join(dir, "tokens.csv"): []byte(made.Admin + `,admin,1,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--etcd-servers", "http://" + etcd, "--bind-address", host,
		"--advertise-address", host, "--secure-port", port, "--cert-dir", dir, "--token-auth-file", filepath.Join(dir, "tokens.csv"),
		"--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.test", "--service-account-key-file", accounts,
		"--service-account-signing-key-file", accounts, "--service-cluster-ip-range", "10.96.0.0/24",
		"--kubelet-preferred-address-types", "InternalIP", "--endpoint-reconciler-type", "none"}
	if kubelets {
		args = append(args, made.trust()...)
	}
	serve(t, addr, filepath.Join(programs, "kube-apiserver"), nil, args...)
	made.Client = &http.Client{Transport: bearer{made.Admin, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	made.await("/readyz")
	config := filepath.Join(dir, "scheduler")
	if err := os.WriteFile(config, made.kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler := FreeAddr(t)
	serve(t, scheduler, filepath.Join(programs, "kube-scheduler"), nil, "--kubeconfig", config, "--leader-elect=false",
		"--authentication-kubeconfig", config, "--authorization-kubeconfig", config, "--bind-address", "127.0.0.1", "--secure-port",
		scheduler[len("127.0.0.1:"):], "--cert-dir", dir)
	return made
}

// trust makes who signs the certificates of kubelets and of their caller, and gives the API server's flags for that.
func (k *Kubernetes) trust() []string {
	k.authority = newAuthority(k.t, k.t.TempDir())
	k.authority.issue("client", k.authority, &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver",
		Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return []string{"--kubelet-certificate-authority", k.authority.path("ca.crt"), "--kubelet-client-certificate",
		k.authority.path("client.crt"), "--kubelet-client-key", k.authority.path("client.key"), "--allow-privileged"}
}

// kubeconfig leads an admin to the API server.
func (k *Kubernetes) kubeconfig() []byte {
	text, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": k.URL, "certificate-authority": k.CA}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": k.Admin}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}}})
	return text
}

// has reports whether there is an object.
func (k *Kubernetes) has(path string) bool {
	k.t.Helper()
	res, err := k.Client.Get(k.URL + path)
	if err != nil {
		k.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// bearer adds a token to requests.
type bearer struct {
	token string
	to    http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.to.RoundTrip(r)
}

func (k *Kubernetes) await(path string) {
	k.t.Helper()
	began := time.Now()
	for {
		res, err := k.Client.Get(k.URL + path)
		why := fmt.Sprint(err)
		if err == nil {
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
			why = string(text)
		}
		if time.Since(began) > 2*time.Minute {
			k.t.Fatalf("waited in vain for %s of the API server: %s", path, why)
		}
		Pause(began)
	}
}

// Do asks the API server as its admin, and gives the answer.
func (k *Kubernetes) Do(method, path string, body any) (answer map[string]any) {
	k.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		k.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.URL+path, bytes.NewReader(data))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := k.Client.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode > 299 {
		k.t.Fatalf("%s %s: %s: %s", method, path, res.Status, text)
	}
	_ = json.Unmarshal(text, &answer)
	return answer
}

// Apply makes the objects of a manifest whose kinds have a path here; a controller would be needed for the others.
func (k *Kubernetes) Apply(manifest string, paths map[string]string) {
	k.t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		k.t.Fatal(err)
	}
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o map[string]any
		if err := yaml.Unmarshal(part, &o); err != nil {
			k.t.Fatalf("%s: %v", manifest, err)
		}
		kind, _ := o["kind"].(string)
		if path := paths[kind]; path != "" {
			k.Do(http.MethodPost, path, o)
		}
	}
}
