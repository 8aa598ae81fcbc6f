//go:build linux

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
)

// shared serves a registry in which hostile (with two namespaces) and honest may have so many bytes each.
func shared(t *testing.T, limit int64) (*Handler, string) {
	h := &Handler{Store: openStore(t, Options{}), Registry: "r.skerry", Authorize: allow, Share: func(_ context.Context, namespace string) (Share, error) {
		switch namespace {
		case "hostile", "hostile2":
			return Share{Owner: "hostile", Namespaces: []string{"hostile", "hostile2"}, Bytes: limit, Hint: "ask for more"}, nil
		case "honest":
			return Share{Owner: "honest", Namespaces: []string{"honest"}, Bytes: limit}, nil
		}
		return Share{}, nil
	}}
	return h, startHandler(t, h)
}

// blobsOnDisk sums what the store's blobs and unfinished uploads take.
func blobsOnDisk(t *testing.T, s *Store) (sum int64) {
	t.Helper()
	for _, dir := range []string{"blobs/sha256", "tmp"} {
		list, err := os.ReadDir(filepath.Join(s.dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if st, err := e.Info(); err == nil {
				sum += st.Size()
			}
		}
	}
	return sum
}

func pushImage(t *testing.T, host, ref string, layers int, size int64) (v1.Image, error) {
	t.Helper()
	img, err := random.Image(size, int64(layers))
	if err != nil {
		t.Fatal(err)
	}
	n, err := gname.ParseReference(host+"/"+ref, gname.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return img, remote.Write(n, img)
}

// denied checks that a client is told of it as registries do, with both numbers.
func denied(t *testing.T, err error, limit int64) {
	t.Helper()
	var e *transport.Error
	if !errors.As(err, &e) || e.StatusCode != http.StatusForbidden || len(e.Errors) != 1 || e.Errors[0].Code != transport.DeniedErrorCode {
		t.Fatalf("the client is told %v", err)
	}
	for _, want := range []string{"hostile", fmt.Sprint(limit), " used", "ask for more"} {
		if !strings.Contains(e.Errors[0].Message, want) {
			t.Errorf("%q does not say %q", e.Errors[0].Message, want)
		}
	}
}

// TestPushesOfOneOwnerAreBounded has an owner of two namespaces push until it is refused, with an ordinary client.
func TestPushesOfOneOwnerAreBounded(t *testing.T) {
	const limit = 1 << 20
	h, host := shared(t, limit)
	var last error
	n := 0
	for ; n < 30 && last == nil; n++ {
		_, last = pushImage(t, host, fmt.Sprintf("hostile%s/r%d:1", []string{"", "2"}[n%2], n), 1, 100_000)
	}
	denied(t, last, limit)
	if used := h.Pushed("hostile", "hostile2"); n < 8 || used > limit || used < limit/2 {
		t.Errorf("%d images of 100 kB, %d bytes of %d used", n, used, limit)
	}
	if disk := blobsOnDisk(t, h.Store); disk > limit {
		t.Errorf("%d bytes on the disk", disk)
	}
	if _, err := pushImage(t, host, "honest/web:1", 1, 100_000); err != nil {
		t.Errorf("another: %v", err)
	}
	if _, err := pushImage(t, host, "tools/base:1", 3, 1_000_000); err != nil {
		t.Errorf("the operator: %v", err)
	}
	// To delete makes room, on the disk too, at once.
	before := blobsOnDisk(t, h.Store)
	d, err := gname.ParseReference(host+"/hostile/r0:1", gname.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := remote.Head(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Delete(d.Context().Digest(desc.Digest.String())); err != nil {
		t.Fatal(err)
	}
	if after := blobsOnDisk(t, h.Store); before-after < 100_000 {
		t.Errorf("%d bytes before and %d after the deletion", before, after)
	}
	if _, err := pushImage(t, host, "hostile/again:1", 1, 90_000); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// TestSharedBlobsCountForEachOwner: a layer counts once for an owner, however many of its images have it, and for every owner that has it.
func TestSharedBlobsCountForEachOwner(t *testing.T) {
	h, host := shared(t, 1<<20)
	img, err := pushImage(t, host, "hostile/a:1", 1, 300_000)
	if err != nil {
		t.Fatal(err)
	}
	one := h.Pushed("hostile", "hostile2")
	for _, ref := range []string{"hostile/a:2", "hostile/b:1", "hostile2/c:1", "honest/d:1"} {
		n, _ := gname.ParseReference(host+"/"+ref, gname.Insecure)
		if err := remote.Write(n, img); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.Pushed("hostile", "hostile2"); got < one || got > one+10*slot {
		t.Errorf("%d bytes with one copy and %d with four", one, got)
	}
	if got := h.Pushed("honest"); got != one {
		t.Errorf("%d bytes for the other owner, not %d", got, one)
	}
	// It stays for the one when the other deletes its own.
	d, _ := img.Digest()
	for _, repo := range []string{"hostile/a", "hostile/b", "hostile2/c"} {
		if res := request(t, "DELETE", "http://"+host+"/v2/"+repo+"/manifests/"+d.String(), nil); res.StatusCode != http.StatusAccepted {
			t.Errorf("delete: %d", res.StatusCode)
		}
	}
	if got := h.Pushed("hostile", "hostile2"); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
	n, _ := gname.ParseReference(host+"/honest/d:1", gname.Insecure)
	back, err := remote.Image(n)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := back.Layers()
	if err != nil {
		t.Fatal(err)
	}
	rc, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	if n, err := io.Copy(io.Discard, rc); err != nil || n < 300_000 {
		t.Errorf("%d bytes of the layer: %v", n, err)
	}
}

// TestUploadsCountWhileTheyCome sends much at once, in pieces without a length, and never ends an upload.
func TestUploadsCountWhileTheyCome(t *testing.T) {
	const limit = 1 << 20
	h, host := shared(t, limit)
	var wg sync.WaitGroup
	for k := range 8 {
		begun := request(t, "POST", "http://"+host+fmt.Sprintf("/v2/hostile/r%d/blobs/uploads/", k), nil)
		if begun.StatusCode != http.StatusAccepted {
			t.Fatal(begun.StatusCode)
		}
		wg.Go(func() {
			for range 10 {
				req, _ := http.NewRequest("PATCH", "http://"+host+begun.Header.Get("Location"), struct{ io.Reader }{bytes.NewReader(make([]byte, 64_000))})
				if res, err := http.DefaultClient.Do(req); err == nil {
					res.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	if disk := blobsOnDisk(t, h.Store); disk > limit || disk < limit/2 {
		t.Errorf("%d bytes on the disk with a limit of %d", disk, limit)
	}
	more := make([]byte, 64_000)
	res := request(t, "POST", "http://"+host+"/v2/hostile2/x/blobs/uploads/?digest="+digest.FromBytes(more).String(), more)
	if b, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusForbidden || !strings.Contains(string(b), `"DENIED"`) {
		t.Errorf("a further upload: %d %s", res.StatusCode, b)
	}
	if _, err := pushImage(t, host, "honest/web:1", 1, 100_000); err != nil {
		t.Errorf("another: %v", err)
	}
}

// TestSmallThingsCount pushes what has hardly any bytes: tags, manifests and blobs take room in indices and on disks all the same.
func TestSmallThingsCount(t *testing.T) {
	h, host := shared(t, 40*slot)
	img, err := pushImage(t, host, "hostile/a:1", 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	for k := 0; err == nil; k++ {
		if k > 100 {
			t.Fatal("tags have no end")
		}
		n, _ := gname.ParseReference(fmt.Sprintf("%s/hostile/a:t%d", host, k), gname.Insecure)
		err = remote.Write(n, img)
	}
	denied(t, err, 40*slot)
	if got := h.Pushed("hostile", "hostile2"); got > 40*slot {
		t.Error(got)
	}
}

// TestCachedContentIsNobodysPush: what a site fetched from its root is no push of whose it is, and what was pushed to the site is.
func TestCachedContentIsNobodysPush(t *testing.T) {
	const limit = 1 << 20
	_, root := shared(t, 10*limit)
	site, host := shared(t, limit)
	site.UpstreamLocal = []*Source{{BaseURL: "http://" + root}}
	if _, err := pushImage(t, root, "hostile/big:1", 1, 2*limit); err != nil {
		t.Fatal(err)
	}
	n, _ := gname.ParseReference(host+"/hostile/big:1", gname.Insecure)
	img, err := remote.Image(n)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	rc, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, rc); err != nil {
		t.Fatal(err)
	}
	rc.Close()
	if _, err := pushImage(t, host, "hostile/own:1", 1, limit/2); err != nil {
		t.Errorf("the cache is in its way: %v", err)
	}
	if got := site.Pushed("hostile"); got < limit/2 || got > limit {
		t.Errorf("%d bytes were pushed", got)
	}
	_, err = pushImage(t, host, "hostile/own:2", 1, limit/2)
	denied(t, err, limit)
}
