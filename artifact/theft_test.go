//go:build linux

package artifact

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/opencontainers/go-digest"
)

// TestLayersElsewhereAreNoKey: a manifest may name layers that were not pushed because they lie on another server. Whoever names one of
// somebody else's in that way does not get it, does not learn whether it is here, and pays nothing for it.
func TestLayersElsewhereAreNoKey(t *testing.T) {
	h, host := shared(t, 1<<20)
	secret, err := pushImage(t, host, "honest/app:1", 1, 50_000)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := secret.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, image := sumOf(t, layers[0]), sumOf(t, secret)
	base := "http://" + host + "/v2/hostile/app/"
	const config = `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`
	configSum := digest.FromString(config)
	if res := request(t, "POST", base+"blobs/uploads/?digest="+configSum.String(), []byte(config)); res.StatusCode != http.StatusCreated {
		t.Fatalf("push of a blob: %s", res.Status)
	}
	const oci, elsewhere = "application/vnd.oci.image.", "application/vnd.oci.image.layer.nondistributable.v1.tar"
	desc := func(d digest.Digest, size int) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d,"urls":["https://example.com/a"]}`, elsewhere, d, size)
	}
	own := fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d}`, configSum, len(config))
	put := func(tag, kind, body string) int {
		body = fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s%s.v1+json",%s}`, oci, kind, body)
		return request(t, "PUT", base+"manifests/"+tag, []byte(body)).StatusCode
	}
	unknown := digest.FromString("nobody has it")
	var pushed []int64
	for i, d := range []digest.Digest{layer, image, unknown} {
		before := h.Pushed("hostile", "hostile2")
		tag := fmt.Sprint("layer", i)
		if got := put(tag, "manifest", `"config":`+own+`,"layers":[`+desc(d, 50_000)+`]`); got != http.StatusCreated {
			t.Fatalf("push of an image with a layer elsewhere: %d", got)
		}
		pushed = append(pushed, h.Pushed("hostile", "hostile2")-before)
		for _, path := range []string{"blobs/", "manifests/"} {
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				if res := request(t, method, base+path+d.String(), nil); res.StatusCode != http.StatusNotFound {
					t.Errorf("%s %s%s: %s", method, path, d, res.Status)
				}
			}
		}
		mount := "http://" + host + "/v2/hostile/other/blobs/uploads/?from=hostile/app&mount=" + d.String()
		if res := request(t, "POST", mount, nil); res.StatusCode != http.StatusAccepted {
			t.Errorf("mount of %s: %s", d, res.Status)
		}
	}
	if pushed[0] != pushed[2] || pushed[1] != pushed[2] {
		t.Errorf("images with a layer elsewhere count for %v bytes, by what others have", pushed)
	}
	for _, n := range []string{"hostile/app@" + image.String(), "hostile/app:layer0"} {
		if _, err := h.Store.Resolve(context.Background(), "r.skerry/"+n, Platform{}); err == nil {
			t.Errorf("%s is an image", n)
		}
	}
	// Manifests and configs do not lie elsewhere.
	for _, d := range []digest.Digest{image, unknown} {
		if got := put("index", "index", `"manifests":[`+desc(d, len(mustManifest(t, secret)))+`]`); got != http.StatusBadRequest {
			t.Errorf("push of an index with a manifest elsewhere: %d", got)
		}
		if got := put("config", "manifest", `"config":`+desc(d, 50_000)+`,"layers":[]`); got != http.StatusBadRequest {
			t.Errorf("push of an image with its config elsewhere: %d", got)
		}
	}
	// One that was pushed nevertheless is served.
	text := "a layer that anybody may have"
	sum := digest.FromString(text)
	if res := request(t, "POST", base+"blobs/uploads/?digest="+sum.String(), []byte(text)); res.StatusCode != http.StatusCreated {
		t.Fatalf("push of a blob: %s", res.Status)
	}
	if got := put("own", "manifest", `"config":`+own+`,"layers":[`+desc(sum, len(text))+`]`); got != http.StatusCreated {
		t.Fatalf("push of an image with a layer that lies elsewhere and here: %d", got)
	}
	res, err := http.Get(base + "blobs/" + sum.String())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != text {
		t.Errorf("the layer that was pushed: %s, %q, %v", res.Status, got, err)
	}
}

func mustManifest(t *testing.T, i interface{ RawManifest() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := i.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
