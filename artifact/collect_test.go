//go:build linux

package artifact

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/internal/testenv"
)

// aging serves a registry with a clock that the test sets.
type aging struct {
	*Handler
	host  string
	ahead atomic.Int64 // of the machine's clock
}

func startAging(t *testing.T) *aging {
	a := &aging{}
	a.Handler = &Handler{Store: openStore(t, Options{Now: a.now}), Registry: "r.skerry", Authorize: allow}
	a.host = startHandler(t, a)
	return a
}

func (a *aging) now() time.Time          { return time.Now().Add(time.Duration(a.ahead.Load())) }
func (a *aging) pass(time time.Duration) { a.ahead.Add(int64(time)) }

func (a *aging) ref(t *testing.T, name string) gname.Reference {
	t.Helper()
	r, err := gname.ParseReference(a.host+"/"+name, gname.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// push pushes a new image of so many bytes, and gives its digest.
func (a *aging) push(t *testing.T, name string, size int64) digest.Digest {
	t.Helper()
	img, err := pushImage(t, a.host, name, 1, size)
	if err != nil {
		t.Fatal(err)
	}
	return sumOf(t, img)
}

func sumOf(t *testing.T, i interface{ Digest() (v1.Hash, error) }) digest.Digest {
	t.Helper()
	d, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.Digest(d.String())
}

func (a *aging) collect(t *testing.T, l Limits, inUse ...digest.Digest) Pruned {
	t.Helper()
	used := map[digest.Digest]bool{}
	for _, d := range inUse {
		used[d] = true
	}
	p, err := a.Collect(t.Context(), l, used)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// whole checks that an image can be pulled, with all its layers.
func (a *aging) whole(t *testing.T, name string) {
	t.Helper()
	img, err := remote.Image(a.ref(t, name))
	if err == nil {
		err = validate.Image(img)
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func (a *aging) gone(t *testing.T, name string) {
	t.Helper()
	if _, err := remote.Head(a.ref(t, name)); err == nil {
		t.Errorf("%s is still there", name)
	}
}

// TestCollectUntagged: an image without a tag goes some time after its last use, with what says something about it, unless something uses
// it. Parts of indexes and signatures of images that stay are no such images.
func TestCollectUntagged(t *testing.T) {
	a := startAging(t)
	old, used := a.push(t, "team/app:1", 50_000), a.push(t, "team/used:1", 50_000)
	a.push(t, "team/app:"+SignatureTag(old), 1000)
	about := func(name string, of digest.Digest) digest.Digest {
		base, err := random.Image(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := v1.NewHash(of.String())
		if err != nil {
			t.Fatal(err)
		}
		subject := v1.Descriptor{MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: hash, Size: 1}
		img := mutate.Subject(base, subject).(v1.Image)
		d := sumOf(t, img)
		if err := remote.Write(a.ref(t, name+"@"+d.String()), img); err != nil {
			t.Fatal(err)
		}
		return d
	}
	list := about("team/app", old)
	idx, err := random.Index(1000, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(a.ref(t, "team/multi:1"), idx); err != nil {
		t.Fatal(err)
	}
	im, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	child := "team/multi@" + im.Manifests[0].Digest.String()
	listOfIndex := about("team/multi", sumOf(t, idx))
	a.pass(29 * 24 * time.Hour)
	a.push(t, "team/app:1", 50_000) // the tags move
	a.push(t, "team/used:1", 50_000)
	month := Limits{Untagged: 30 * 24 * time.Hour}
	a.pass(29 * 24 * time.Hour)
	if p := a.collect(t, month, used); len(p.Names) != 0 {
		t.Errorf("%v went, and had a tag until 29 days ago", p.Names)
	}
	a.pass(2 * 24 * time.Hour)
	if p := a.collect(t, Limits{}, used); len(p.Names) != 0 {
		t.Errorf("%v went without a limit", p.Names)
	}
	before := blobsOnDisk(t, a.Store)
	p := a.collect(t, month, used)
	// The image, its signature by tag and digest, and its list.
	if len(p.Names) != 4 || p.Bytes < 50_000 || before-blobsOnDisk(t, a.Store) != p.Bytes {
		t.Errorf("collected %+v; %d bytes less on the disk", p, before-blobsOnDisk(t, a.Store))
	}
	for _, name := range []string{"team/app@" + old.String(), "team/app:" + SignatureTag(old), "team/app@" + list.String()} {
		a.gone(t, name)
	}
	for _, name := range []string{"team/app:1", "team/used:1", "team/used@" + used.String(), child, "team/multi@" + listOfIndex.String()} {
		a.whole(t, name)
	}
	a.pass(31 * 24 * time.Hour)
	if p := a.collect(t, month); len(p.Names) != 1 { // nothing uses it any more
		t.Errorf("collected %+v", p)
	}
	// An index goes with its parts, and with what is about it.
	if err := remote.Delete(a.ref(t, "team/multi:1")); err != nil {
		t.Fatal(err)
	}
	a.pass(31 * 24 * time.Hour)
	if p := a.collect(t, month); len(p.Names) != 4 {
		t.Errorf("of the index went %v", p.Names)
	}
	a.gone(t, child)
}

// TestCollectSpace: above the limit images go, those without a tag first and then the longest unused, but none that something uses.
func TestCollectSpace(t *testing.T) {
	a := startAging(t)
	digests := map[string]digest.Digest{}
	for _, name := range []string{"a", "b", "c", "d"} {
		digests[name] = a.push(t, "team/"+name+":1", 100_000)
		a.pass(time.Minute)
	}
	a.push(t, "team/d:1", 100_000)
	a.pass(2 * time.Hour)
	a.whole(t, "team/b:1") // a use
	a.pass(2 * time.Hour)
	limits := Limits{Space: 500_000}
	for _, want := range []string{"r.skerry/team/d@", "r.skerry/team/c", ""} { // a is in use, b was used
		p := a.collect(t, limits, digests["a"])
		if want == "" != (len(p.Names) == 0) || len(p.Names) > 0 && !strings.HasPrefix(p.Names[0], want) {
			t.Errorf("with %d bytes %v went, want %q", limits.Space, p.Names, want)
		}
		limits.Space -= 110_000
		if want == "r.skerry/team/c" {
			limits.Space += 110_000
		}
	}
	for _, name := range []string{"a", "b", "d"} {
		a.whole(t, "team/"+name+":1")
	}
	a.pass(2 * time.Hour)
	// Nothing that somebody just pushed goes, however little room there is.
	a.push(t, "team/new:1", 100_000)
	a.collect(t, Limits{Space: 1}, digests["a"])
	for _, name := range []string{"a", "new"} {
		a.whole(t, "team/"+name+":1")
	}
	a.gone(t, "team/b:1")
}

// TestCollectSparesWhatAClientWasToldOf: a client that asks for a layer does not send it, and names it soon after.
func TestCollectSparesWhatAClientWasToldOf(t *testing.T) {
	a := startAging(t)
	img, err := pushImage(t, a.host, "team/app:1", 2, 50_000)
	if err != nil {
		t.Fatal(err)
	}
	a.pass(2 * time.Hour)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer := sumOf(t, layers[0])
	if res := request(t, "HEAD", "http://"+a.host+"/v2/team/app/blobs/"+layer.String(), nil); res.StatusCode != http.StatusOK {
		t.Fatalf("HEAD of a layer: %s", res.Status)
	}
	a.collect(t, Limits{Space: 1})
	a.whole(t, "team/app:1")
	a.pass(2 * time.Hour)
	a.collect(t, Limits{Space: 1})
	a.gone(t, "team/app:1")
}

// TestCollectBesidePushes has clients push images that share layers with old ones, which go meanwhile: every push arrives whole.
func TestCollectBesidePushes(t *testing.T) {
	a := startAging(t)
	const rounds, clients = 6, 3
	images := map[int][]v1.Image{}
	for r := range rounds {
		for c := range clients {
			img, err := pushImage(t, a.host, fmt.Sprintf("team/r%d:%d", r, c), 3, 10_000)
			if err != nil {
				t.Fatal(err)
			}
			images[r] = append(images[r], img)
		}
	}
	a.pass(3 * time.Hour)
	stop := make(chan struct{})
	var collector, pushers sync.WaitGroup
	removed := 0
	collector.Go(func() {
		for {
			p, err := a.Collect(t.Context(), Limits{Space: 1}, nil)
			if err != nil {
				t.Error(err)
			}
			removed += len(p.Names)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for c := range clients {
		pushers.Go(func() {
			for r := range rounds {
				if err := remote.Write(a.ref(t, fmt.Sprintf("team/r%d:again%d", r, c)), images[r][c]); err != nil {
					t.Errorf("push beside the collector: %v", err)
				}
			}
		})
	}
	pushers.Wait()
	close(stop)
	collector.Wait()
	if removed == 0 {
		t.Error("nothing was collected meanwhile")
	}
	for r := range rounds {
		for c := range clients {
			a.whole(t, fmt.Sprintf("team/r%d:again%d", r, c))
		}
	}
}

// collectorDir names the store of TestCollectorProcess.
const collectorDir = "SKERRY_TEST_COLLECTOR"

// TestCollectorProcess is the process that TestCollectorKilled kills: it pushes images under a few tags, and collects, until its end.
func TestCollectorProcess(t *testing.T) {
	dir := os.Getenv(collectorDir)
	if dir == "" {
		t.Skip(&testenv.Unsupported{What: "the process that TestCollectorKilled kills", Why: "only that test starts it"})
	}
	var ahead atomic.Int64
	s, err := Open(dir, Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	pushForEver(t, &Handler{Store: s, Registry: "r.skerry", Authorize: allow}, &ahead, 3*time.Hour)
}

// pushForEver pushes images under a few tags, of which it tells, and collects after each, by a clock that goes on by so much.
func pushForEver(t *testing.T, h *Handler, ahead *atomic.Int64, each time.Duration) {
	srv := httptest.NewServer(h)
	for n := 0; ; n++ {
		tag := fmt.Sprintf("team/app:%d", n%3)
		if _, err := pushImage(t, strings.TrimPrefix(srv.URL, "http://"), tag, 2, 20_000); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pushed", tag)
		ahead.Add(int64(each))
		if _, err := h.Collect(t.Context(), Limits{Untagged: time.Hour}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// killedAfter starts a test of this program as a process of its own, kills it once it has told of so many pushes, and gives their tags.
func killedAfter(t *testing.T, process string, pushes int, env ...string) map[string]bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+process+"$")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pushed := map[string]bool{}
	var other []string
	lines := bufio.NewScanner(out)
	for n := 0; n < pushes && lines.Scan(); {
		if tag, ok := strings.CutPrefix(lines.Text(), "pushed "); ok {
			pushed[tag] = true
			n++
		} else {
			other = append(other, lines.Text())
		}
	}
	cancel() // kills it, wherever it is
	_ = cmd.Wait()
	if len(pushed) < 3 {
		t.Fatalf("%s pushed only %v:\n%s", process, pushed, strings.Join(other, "\n"))
	}
	return pushed
}

// TestCollectorKilled kills a registry that pushes and collects, again and again. What it said it has, it has, whole; what nothing names
// goes with the next collection.
func TestCollectorKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	for round := range 8 {
		pushed := killedAfter(t, "TestCollectorProcess", 3+round, collectorDir+"="+dir)
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := &Handler{Store: s, Registry: "r.skerry", Authorize: allow}
		srv := httptest.NewServer(h)
		a := &aging{Handler: h, host: strings.TrimPrefix(srv.URL, "http://")}
		for tag := range pushed {
			a.whole(t, tag)
		}
		if _, err := s.Prune(nil, time.Now().Add(time.Hour), nil); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		live, _, _ := s.liveLocked(t.Context(), nil)
		s.mu.Unlock()
		blobs, err := blobsOf(s)
		if err != nil {
			t.Fatal(err)
		}
		for d := range live {
			if blobs[d] == nil {
				t.Errorf("round %d: %s is named and not here", round, d)
			}
		}
		if len(blobs) != len(live) {
			t.Errorf("round %d: %d blobs are here, and %d are needed", round, len(blobs), len(live))
		}
		proven, err := os.ReadDir(filepath.Join(dir, "proven"))
		if err != nil || len(proven) > len(blobs) {
			t.Errorf("round %d: %d blobs are proven, %d are here; %v", round, len(proven), len(blobs), err)
		}
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		upload := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "blob-") }
		if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil && !os.IsNotExist(err) || slices.ContainsFunc(left, upload) {
			t.Errorf("round %d: unfinished uploads are left: %v, %v", round, left, err)
		}
	}
}

// part pushes an image by its digest alone, as a client does with the parts of an index.
func (a *aging) part(t *testing.T, repo string) v1.Image {
	t.Helper()
	img, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(a.ref(t, repo+"@"+sumOf(t, img).String()), img); err != nil {
		t.Fatal(err)
	}
	return img
}

// TestCollectSparesPartsOfWhatIsPushedNow: a client that finds a part of its next index does not send it, although two older indexes with
// the same part go at that moment.
func TestCollectSparesPartsOfWhatIsPushedNow(t *testing.T) {
	a := startAging(t)
	shared := a.part(t, "team/app")
	index := func(tag string) v1.ImageIndex {
		idx := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: shared}, mutate.IndexAddendum{Add: a.part(t, "team/app")})
		if err := remote.WriteIndex(a.ref(t, "team/app:"+tag), idx); err != nil {
			t.Fatal(err)
		}
		return idx
	}
	old := index("1")
	index("2")
	a.pass(3 * time.Hour)
	if _, err := remote.Head(a.ref(t, "team/app@"+sumOf(t, shared).String())); err != nil {
		t.Fatal(err)
	}
	a.collect(t, Limits{Space: 1})
	a.gone(t, "team/app@"+sumOf(t, old).String())
	a.whole(t, "team/app@"+sumOf(t, shared).String())
	a.pass(2 * time.Hour)
	a.collect(t, Limits{Space: 1})
	a.gone(t, "team/app@"+sumOf(t, shared).String())
}

// TestCollectRings: tags can make images say something about one another in a ring. That protects none of them.
func TestCollectRings(t *testing.T) {
	a := startAging(t)
	imgs := []v1.Image{a.part(t, "team/ring"), a.part(t, "team/ring"), a.part(t, "team/ring")}
	for i, img := range imgs {
		tag := tagOf(sumOf(t, imgs[(i+1)%len(imgs)])) + ".about"
		if err := remote.Write(a.ref(t, "team/ring:"+tag), img); err != nil {
			t.Fatal(err)
		}
	}
	a.pass(2 * time.Hour)
	if p := a.collect(t, Limits{Untagged: time.Hour}); len(p.Names) != 2*len(imgs) {
		t.Errorf("of a ring of %d images without a tag of their own went %v", len(imgs), p.Names)
	}
}

// TestCollectSparesSignaturesOfOthers: signatures of an image may be kept in a repository that does not have the image. Their tag is one
// like any other.
func TestCollectSparesSignaturesOfOthers(t *testing.T) {
	a := startAging(t)
	name := "team/signatures:" + SignatureTag(digest.FromString("an image of another registry"))
	a.push(t, name, 1000)
	a.pass(31 * 24 * time.Hour)
	if p := a.collect(t, Limits{Untagged: 30 * 24 * time.Hour}); len(p.Names) != 0 {
		t.Errorf("%v went, which have a tag", p.Names)
	}
	a.whole(t, name)
}

// TestCollectAfterTheClockWasAhead: what was pushed while the clock was wrong is not spared until that time comes.
func TestCollectAfterTheClockWasAhead(t *testing.T) {
	a := startAging(t)
	const year = 365 * 24 * time.Hour
	a.pass(year)
	a.push(t, "team/app:1", 1000)
	a.pass(-year)
	a.collect(t, Limits{Space: 1})
	a.whole(t, "team/app:1")
	a.pass(2 * time.Hour)
	a.collect(t, Limits{Space: 1})
	a.gone(t, "team/app:1")
}

// TestCollectAfterAnUpgrade: earlier versions did not note when an image lost its tag. It has its time from the upgrade on.
func TestCollectAfterAnUpgrade(t *testing.T) {
	a := startAging(t)
	a.push(t, "team/app:1", 1000)
	a.pass(60 * 24 * time.Hour)
	if err := remote.Delete(a.ref(t, "team/app:1")); err != nil {
		t.Fatal(err)
	}
	s := a.Store
	s.mu.Lock()
	for k, n := range s.names { // as the version before left it
		n.LastUsed = n.Added
		s.names[k] = n
	}
	if err := s.saveNamesLocked(); err != nil {
		t.Fatal(err)
	}
	s.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "blobs", "sha512")); err != nil {
		t.Fatal(err)
	}
	month := Limits{Untagged: 30 * 24 * time.Hour}
	for range 2 { // it is started again
		again, err := Open(s.dir, Options{Now: a.now})
		if err != nil {
			t.Fatal(err)
		}
		a.Store = again
		if p := a.collect(t, month); len(p.Names) != 0 {
			t.Errorf("%v went right after the upgrade", p.Names)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(s.dir, Options{Now: a.now})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	a.Store = again
	a.pass(31 * 24 * time.Hour)
	if p := a.collect(t, month); len(p.Names) != 1 {
		t.Errorf("a month later %v went", p.Names)
	}
}
