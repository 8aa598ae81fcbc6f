//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestDamagedImages has the disk change what images are made of, while nothing runs from them: a program in an unpacked layer, of a container and of a
// process, and a layer's blob at the worker together with the site's copy of it. Each starts all the same, with what the root has, and an event says
// what was put right. The site asks for signatures, which come to the worker through all tiers; what nobody has signed does not start.
func TestDamagedImages(t *testing.T) {
	key, public := signer(t)
	s := (&site{t: t, admission: &clustercore.Admission{Trusted: []string{parents.DefaultOrg},
		Signers: map[string][]string{"*": {public}}}}).open()
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.image("test/sole:1", "skerry.dev/skerry/e2e/sole")
	if _, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: t.TempDir(), Tag: "skerry.local/test/unsigned:1", Platform: artifact.HostPlatform(), Entrypoint: []string{"/x"}}); err != nil {
		t.Fatal(err)
	}
	s.sign(key, "test/catalog:1", "test/sole:1")
	lock := filepath.Join(t.TempDir(), "lock")
	box := spec.ServiceSpec{Name: "box", Resources: spec.Resources{CPU: 100, Memory: 64 * skerry.MiB}}
	box.Image = "test/catalog:1"
	bare := spec.ServiceSpec{Name: "bare", Runtime: spec.RuntimeNative, Resources: spec.Resources{CPU: 100, Memory: 64 * skerry.MiB}}
	bare.Image, bare.Command = "test/sole:1", []string{"/program", lock}
	s.do(app("shop", box, bare))
	s.await("both are ready", s.ready(2))
	plain := spec.ServiceSpec{Name: "plain", Resources: box.Resources}
	plain.Image = "test/unsigned:1"
	s.do(app("stranger", plain))
	s.await("the root hears that it is not signed", func() bool {
		list, err := s.Root.Instances(t.Context())
		return err == nil && slices.ContainsFunc(list, func(i wire.Instance) bool { return strings.Contains(i.Reason, "is not signed: ") })
	})
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "stranger"}})
	s.await("it is gone", s.ready(2))
	layers := map[string]string{} // the program of each in its unpacked layer
	for _, name := range []string{"box", "bare"} {
		layers[name] = filepath.Join(s.layerOf(name), "program")
	}
	scale := func(name string, n, all int) {
		t.Helper()
		s.do(apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: name}, Replicas: n})
		s.await(fmt.Sprint(all, " are ready"), s.ready(all))
	}
	repaired := func(part string) int {
		return len(s.Worker.Journal().List(100, func(e *wire.Event) bool { return e.Reason == "ImageRepaired" && strings.Contains(e.Text, part) }))
	}
	for _, c := range []struct {
		name string
		harm func([]byte) []byte
	}{
		{"box", func(b []byte) []byte { b[1] ^= 4; return b }}, // it is no program any more
		{"bare", func(b []byte) []byte {
			return append(b[:len(b)/2:len(b)/2], bytes.Repeat([]byte{0}, len(b)-len(b)/2)...)
		}},
	} {
		scale(c.name, 0, 1)
		harm(t, layers[c.name], c.harm)
		scale(c.name, 1, 2)
		s.await("the event of "+c.name, func() bool { return repaired("/program of layer") >= map[string]int{"box": 1, "bare": 2}[c.name] })
	}
	scale("box", 0, 1)
	layer := filepath.Dir(filepath.Dir(layers["box"]))
	from, err := os.ReadDir(filepath.Join(layer, "from"))
	if err != nil || len(from) != 1 {
		t.Fatal(from, err)
	}
	blob := from[0].Name()
	if err := os.RemoveAll(layer); err != nil { // it is unpacked again
		t.Fatal(err)
	}
	for _, role := range []string{"worker", "cluster"} {
		harm(t, filepath.Join(s.dir, role, "images", "blobs", "sha256", blob), func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	}
	scale("box", 1, 2)
	s.await("the event of the blob", func() bool { return repaired("fetched again") == 1 })
}

func signer(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// sign has the root's registry keep signatures of images.
func (s *site) sign(key *ecdsa.PrivateKey, tags ...string) {
	s.t.Helper()
	h := &artifact.Handler{Store: s.Root.Images.Store, Registry: "skerry.local", Authorize: func(*http.Request, string, string) error { return nil }}
	srv := httptest.NewServer(h)
	defer srv.Close()
	own, err := artifact.Open(filepath.Join(s.t.TempDir(), "images"), artifact.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer own.Close()
	for _, tag := range tags {
		if _, err := artifact.Sign(s.t.Context(), own, "skerry.local/"+tag, key, &artifact.Source{BaseURL: srv.URL}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// layerOf gives where the only layer of a service's image is unpacked.
func (s *site) layerOf(service string) string {
	s.t.Helper()
	list, err := s.Worker.Instances(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, i := range list {
		if !strings.HasPrefix(string(i.ID), service+"-") {
			continue
		}
		_, d, _ := strings.Cut(i.Digest, "@")
		if d == "" {
			d = i.Digest
		}
		r, err := imageref.Parse("skerry.local/x@" + d)
		if err != nil {
			s.t.Fatal(err)
		}
		dirs, err := s.Worker.Images.RootFS(context.Background(), r.Digest, artifact.HostPlatform())
		if err != nil {
			s.t.Fatal(err)
		}
		return dirs[0]
	}
	s.t.Fatal("nothing runs of " + service)
	return ""
}

// harm changes a file behind the back of everybody.
func harm(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(how(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
