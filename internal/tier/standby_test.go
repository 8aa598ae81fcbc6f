//go:build linux

package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
)

// leaderOf is a process that leads: it serves the images of a role whose store others share.
type leaderOf struct {
	*Images
	t    *testing.T
	host string
	ln   net.Listener // for standbys
	end  func()
}

func roleStore(t *testing.T) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	if _, err := OpenLife(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	return st
}

// leadImages serves the images in a folder until the test ends, or its function end is called.
func leadImages(t *testing.T, dir string, st store.Store) *leaderOf {
	t.Helper()
	life, err := lifeOf(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	standbys := NewStandbys()
	images, err := artifact.Open(dir, artifact.Options{Local: imageref.BuiltIn,
		Ledger: &artifact.Ledger{Names: ImageNames{st}, Life: string(life), Others: standbys}})
	if err != nil {
		t.Fatal(err)
	}
	if err := artifact.LoadDepot(t.Context(), images); err != nil {
		t.Fatal(err)
	}
	l := &leaderOf{Images: NewImages(images, artifact.Limits{}, false, nil), t: t}
	l.StandBy(standbys)
	all := func(string, string) error { return nil }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.ServeHTTP(w, r.WithContext(WithRegistryAuth(r.Context(), all)))
	}))
	l.host = srv.Listener.Addr().String()
	if l.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { standbys.restore(ctx, func(digest.Digest, error) {}) })
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { standbys.Serve(ctx, conn, "second", func() error { return nil }) })
		}
	})
	l.end = sync.OnceFunc(func() {
		cancel()
		l.ln.Close()
		srv.Close()
		wg.Wait()
		images.Close()
	})
	t.Cleanup(l.end)
	return l
}

func (l *leaderOf) ref(name string) gname.Reference {
	l.t.Helper()
	r, err := gname.ParseReference(l.host+"/"+name, gname.Insecure)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// push pushes an image of one layer, and gives its digest.
func (l *leaderOf) push(name string, size int64) digest.Digest {
	l.t.Helper()
	img, err := random.Image(size, 1)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := remote.Write(l.ref(name), img); err != nil {
		l.t.Fatal(err)
	}
	return sumOf(l.t, img)
}

func sumOf(t *testing.T, img v1.Image) digest.Digest {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.Digest(d.String())
}

func (l *leaderOf) pull(name string) error {
	img, err := remote.Image(l.ref(name), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err == nil {
		err = validate.Image(img)
	}
	return err
}

func (l *leaderOf) wantPulled(names ...string) {
	l.t.Helper()
	for _, name := range names {
		if err := l.pull(name); err != nil {
			l.t.Errorf("pull of %s: got %v, want no error", name, err)
		}
	}
}

// awaitState waits until the one standby is as it should be.
func (l *leaderOf) awaitState(what string, ok func(images, missing int, why string) bool) {
	l.t.Helper()
	for {
		l.Standbys.mu.Lock()
		changed := l.Standbys.changed
		l.Standbys.mu.Unlock()
		list := l.Standbys.List()
		if len(list) == 1 && list[0].Connected && ok(list[0].Images, list[0].Missing, list[0].Why) {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			l.t.Fatalf("%s: waited in vain; the standbys are %+v", what, list)
		}
	}
}

// standBy copies images into a folder until the function that it gives is called.
func standBy(t *testing.T, s *Standby, at func() string) (end func()) {
	t.Helper()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Dial == nil {
		s.Dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", at())
		}
	}
	if s.Reserve == 0 {
		s.Reserve = 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx) })
	end = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(end)
	return end
}

func blobsIn(t *testing.T, dir string) (n int) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestImagesOutliveTheirDisk: what was pushed, before a standby came and since, is served by it when the first process and its disk are
// gone. A push is acknowledged with the number of copies.
func TestImagesOutliveTheirDisk(t *testing.T) {
	st := roleStore(t)
	first, second := filepath.Join(t.TempDir(), "images"), filepath.Join(t.TempDir(), "images")
	l := leadImages(t, first, st)
	before := l.push("shop/before:1", 300_000)
	if c := l.Standbys.Copies(before); c != nil {
		t.Errorf("copies without a standby: got %+v, want nil", *c)
	}
	end := standBy(t, &Standby{Dir: second, Store: st}, l.ln.Addr().String)
	l.awaitState("what was there is copied", func(images, missing int, _ string) bool { return images == 1 && missing == 0 })
	since := l.push("shop/since:1", 300_000)
	if c := l.Standbys.Copies(since); c == nil || c.Have != 1 || c.Of != 1 {
		t.Errorf("copies when the push was acknowledged: got %+v, want 1 of 1", c)
	}
	if list, err := l.ListImages(t.Context()); err != nil || len(list) != 2 || list[0].Copies == nil || list[0].Copies.Have != 1 {
		t.Errorf("list: got %+v, %v, want two images with a copy", list, err)
	}
	if n := l.Standbys.uncopied(); n != 0 || l.Standbys.connected() != 1 {
		t.Errorf("metrics: got %d images uncopied at %d standbys, want 0 at 1", n, l.Standbys.connected())
	}
	l.end()
	end()
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	leadImages(t, second, st).wantPulled("shop/before:1", "shop/since:1")
}

// TestStandbyDeletes: an image that is deleted goes from a standby's disk, too, with what only it needed, and is not there when the standby
// leads.
func TestStandbyDeletes(t *testing.T) {
	st := roleStore(t)
	dir := filepath.Join(t.TempDir(), "images")
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), st)
	end := standBy(t, &Standby{Dir: dir, Store: st}, l.ln.Addr().String)
	kept, gone := l.push("shop/kept:1", 1000), l.push("shop/gone:1", 1000)
	l.awaitState("both are copied", func(images, _ int, _ string) bool { return images == 2 })
	if n := blobsIn(t, dir); n != 6 {
		t.Errorf("blobs of two images: got %d, want 6", n)
	}
	if err := remote.Delete(l.ref("shop/gone@" + gone.String())); err != nil {
		t.Fatal(err)
	}
	l.awaitState("one is left", func(images, _ int, _ string) bool { return images == 1 })
	if n := blobsIn(t, dir); n != 3 {
		t.Errorf("blobs of one image: got %d, want 3", n)
	}
	l.end()
	end()
	l = leadImages(t, dir, st)
	l.wantPulled("shop/kept@" + kept.String())
	if err := l.pull("shop/gone:1"); err == nil {
		t.Error("pull of the image that was deleted: got no error, want one")
	}
}

// TestStandbyWithoutRoom: a standby whose disk is full, or bounded, says so and which images it lacks. It copies what fits, pushes go on,
// and it has the rest once there is room.
func TestStandbyWithoutRoom(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatalf("this test mounts a tmpfs and needs root: %v", err)
	}
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	for name, s := range map[string]*Standby{
		"full disk":       {Dir: filepath.Join(disk, "a"), Reserve: 64 << 10},
		"bound of images": {Dir: filepath.Join(t.TempDir(), "images"), Most: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			st := roleStore(t)
			s.Store = st
			l := leadImages(t, filepath.Join(t.TempDir(), "images"), st)
			end := standBy(t, s, l.ln.Addr().String)
			l.push("shop/large:1", 8<<20)
			l.awaitState("it says that the large one does not fit", func(_, missing int, why string) bool {
				return missing == 1 && strings.Contains(why, "no space left for images")
			})
			if state := s.State(); state.Missing != 1 || !strings.Contains(state.Why, "no space left") {
				t.Errorf("state of the standby: got %+v, want one missing for want of room", state)
			}
			small := l.push("shop/small:1", 1000)
			l.awaitState("the small one is copied", func(images, missing int, _ string) bool { return images == 1 && missing == 1 })
			if c := l.Standbys.Copies(small); c == nil || c.Have != 1 {
				t.Errorf("copies of the small image: got %+v, want 1 of 1", c)
			}
			end()
			if name == "full disk" {
				if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
					t.Fatal(err)
				}
			}
			standBy(t, &Standby{Dir: s.Dir, Store: st}, l.ln.Addr().String)
			l.awaitState("both are copied", func(images, missing int, _ string) bool { return images == 2 && missing == 0 })
		})
	}
}

// TestPushWaitsForStandbysInStep: a push waits for a standby that had everything. One that does not make it is not waited for again until
// it has, and the acknowledgement says how many have the image.
func TestPushWaitsForStandbysInStep(t *testing.T) {
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), roleStore(t))
	l.Standbys.Patience = time.Millisecond
	conn, err := net.Dial("tcp", l.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := link.NewDuplex(conn, true, standbyKeepAlive, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := &Standby{}
	tell := func(h have) {
		t.Helper()
		if err := s.tell(t.Context(), d, h); err != nil {
			t.Fatal(err)
		}
	}
	tell(have{Anew: true}) // it has everything: there is nothing
	image := l.push("shop/web:1", 1000)
	if c := l.Standbys.Copies(image); c == nil || c.Have != 0 || c.Of != 1 {
		t.Errorf("copies of what the standby does not fetch: got %+v, want 0 of 1", c)
	}
	l.Standbys.Patience = 24 * time.Hour // it would not end
	next := l.push("shop/web:2", 1000)
	tell(have{Whole: []digest.Digest{image, next}})
	pushed := make(chan digest.Digest)
	go func() { pushed <- l.push("shop/web:3", 1000) }()
	for l.Standbys.uncopied() == 0 {
		select {
		case d := <-pushed:
			t.Fatalf("push of %s was acknowledged before a standby in step had it", d)
		default:
		}
	}
	var third digest.Digest
	for d := range artifact.LedgerImages(l.Store) {
		if d != image && d != next {
			third = d
		}
	}
	tell(have{Whole: []digest.Digest{third}})
	if d := <-pushed; d != third {
		t.Errorf("push acknowledged: got %s, want %s", d, third)
	}
	// One that leaves is not waited for either.
	conn.Close()
	l.push("shop/web:4", 1000)
}

// TestLeaderFetchesFromStandby: a process that leads and lacks what was acknowledged gets it from a standby that has it. Until one is
// connected it says that others may have it.
func TestLeaderFetchesFromStandby(t *testing.T) {
	st := roleStore(t)
	first, second := filepath.Join(t.TempDir(), "images"), filepath.Join(t.TempDir(), "images")
	l := leadImages(t, first, st)
	end := standBy(t, &Standby{Dir: second, Store: st}, l.ln.Addr().String)
	l.push("shop/web:1", 300_000)
	l.push("shop/db:1", 300_000)
	l.awaitState("both are copied", func(images, _ int, _ string) bool { return images == 2 })
	end()
	l.end()
	// The disk of the first is exchanged, and it leads again before the other notices. Its store is elsewhere.
	if err := os.RemoveAll(first); err != nil {
		t.Fatal(err)
	}
	l = leadImages(t, first, st)
	standBy(t, &Standby{Dir: second, Store: st}, l.ln.Addr().String)
	l.awaitState("the standby keeps them", func(images, missing int, _ string) bool { return images == 2 && missing == 0 })
	l.wantPulled("shop/web:1", "shop/db:1")
	if n := blobsIn(t, first); n != 6 {
		t.Errorf("blobs of two images at the one that leads: got %d, want 6", n)
	}
}

// cut is a connection that ends after so many bytes were read.
type cut struct {
	net.Conn
	left  int64
	bytes *atomic.Int64
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.bytes.Add(int64(n))
	return n, err
}

// TestCopyGoesOnAfterABreak: a standby whose connection breaks again and again fetches no part twice.
func TestCopyGoesOnAfterABreak(t *testing.T) {
	st := roleStore(t)
	const size = 6 << 20
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), st)
	l.push("shop/web:1", size)
	var bytes atomic.Int64
	var dials atomic.Int32
	dir := filepath.Join(t.TempDir(), "images")
	standBy(t, &Standby{Dir: dir, Store: st, Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.ln.Addr().String())
		if err != nil {
			return nil, err
		}
		left := int64(2 << 20)
		if dials.Add(1) > 3 {
			left = 1 << 30
		}
		return &cut{conn, left, &bytes}, nil
	}}, nil)
	l.awaitState("it is copied", func(images, missing int, _ string) bool { return images == 1 && missing == 0 })
	if dials.Load() < 4 {
		t.Errorf("connections: got %d, want 4 with three that broke", dials.Load())
	}
	if got := bytes.Load(); got > size*3/2 {
		t.Errorf("bytes that came for an image of %d in pieces of 2 MiB: got %d, want no part twice", size, got)
	}
}

// TestNamesOfAnotherLife: what was pushed to a process before its store knew of images, or in an earlier life of that, is entered when it
// leads; what another process has deleted since is not.
func TestNamesOfAnotherLife(t *testing.T) {
	st := roleStore(t)
	first, second := filepath.Join(t.TempDir(), "images"), filepath.Join(t.TempDir(), "images")
	l := leadImages(t, first, st)
	gone := l.push("shop/gone:1", 1000)
	l.push("shop/kept:1", 1000)
	l.end()
	other := leadImages(t, second, st)
	if err := remote.Delete(other.ref("shop/gone@" + gone.String())); err != nil {
		t.Fatal(err)
	}
	other.end()
	l = leadImages(t, first, st)
	if err := l.pull("shop/gone:1"); err == nil {
		t.Error("pull of what another process has deleted: got no error, want one")
	}
	l.wantPulled("shop/kept:1")
	l.end()
	restored := roleStore(t) // from a backup that is older than the images
	l = leadImages(t, first, restored)
	l.wantPulled("shop/kept:1")
	if list, _, err := restored.List(t.Context(), keyImages); err != nil || len(list) != 2 {
		t.Errorf("names in the restored store: got %d, %v, want 2", len(list), err)
	}
	every := func(string, []byte) error { return nil }
	if err := (namesOfLife{ImageNames{restored}, "another"}).ListRecords(t.Context(), "names/", every); err == nil {
		t.Error("names of a store that took the place of another: got no error, want one: what is missing there was not deleted")
	}
	// A standby does not lose what its own disk had in another life.
	dir := filepath.Join(t.TempDir(), "images")
	own := leadImages(t, dir, roleStore(t))
	own.push("shop/own:1", 1000)
	own.end()
	end := standBy(t, &Standby{Dir: dir, Store: restored}, l.ln.Addr().String)
	l.awaitState("it is copied", func(images, _ int, _ string) bool { return images == 1 })
	end()
	l.end()
	leadImages(t, dir, restored).wantPulled("shop/kept:1", "shop/own:1")
}

// TestStandbyIsRevoked: who may not stand by any more gets nothing, on the connection that it has.
func TestStandbyIsRevoked(t *testing.T) {
	l := leadImages(t, filepath.Join(t.TempDir(), "images"), roleStore(t))
	image := l.push("shop/web:1", 1000)
	here, there := net.Pipe()
	var revoked atomic.Bool
	served := make(chan error, 1)
	go func() {
		served <- l.Standbys.Serve(t.Context(), there, "third", func() error {
			if revoked.Load() {
				return errors.New("it was revoked")
			}
			return nil
		})
	}()
	d, err := link.NewDuplex(here, true, standbyKeepAlive, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ask := func() (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("http://leader/v2/shop/web/manifests/%s?ns=%s", image, imageref.BuiltIn), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := d.Transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		return res.StatusCode, nil
	}
	if status, err := ask(); status != http.StatusOK {
		t.Fatalf("manifest for a standby: got status %d, %v, want 200", status, err)
	}
	revoked.Store(true)
	if status, err := ask(); status == http.StatusOK {
		t.Fatalf("manifest for one that was revoked: got status %d, %v, want a refusal", status, err)
	}
	if err := <-served; err == nil {
		t.Error("its connection: got no error, want why it was closed")
	}
}

// TestReportOfManyImages: a standby tells in some reports what is too much for one, and has not told it all before the last one.
func TestReportOfManyImages(t *testing.T) {
	all := have{Anew: true}
	for n := range 70_000 {
		all.Whole = append(all.Whole, digest.SHA512.FromString(fmt.Sprint(n)))
		all.Gone = append(all.Gone, digest.SHA512.FromString(fmt.Sprint("gone", n)))
	}
	leader, from := NewStandbys(), &standby{whole: map[digest.Digest]bool{"old": true}}
	for n, part := range all.parts(mostInReport) {
		raw, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		read, err := parseHave(bytes.NewReader(raw))
		if err == nil {
			err = leader.hear(from, read)
		}
		if err != nil {
			t.Fatalf("report %d of %d bytes: got %v, want it heard", n, len(raw), err)
		}
		if whole := len(from.whole) == len(all.Whole); from.inStep != whole {
			t.Errorf("after report %d: got in step %v with %d of %d images", n, from.inStep, len(from.whole), len(all.Whole))
		}
	}
	if len(from.whole) != 70_000 || from.missing != 0 || from.whole["old"] {
		t.Errorf("told: got %d images, %d missing, the old one %v; want 70000, 0, false", len(from.whole), from.missing, from.whole["old"])
	}
	if few := (have{Whole: all.Whole[:2]}).parts(mostInReport); len(few) != 1 || few[0].Missing != 0 {
		t.Errorf("a small report: got %d parts, want itself", len(few))
	}
}

// FuzzHave: whatever a standby tells, it names images by digests or is refused.
func FuzzHave(f *testing.F) {
	f.Add(`{"anew":true,"whole":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],"missing":1,"why":"no room"}`)
	f.Add(`{"gone":["sha256:../../etc"]}`)
	f.Add(`{"missing":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHave(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, d := range append(h.Whole, h.Gone...) {
			if _, err := imageref.ParseDigest(d.String()); err != nil {
				t.Errorf("digest %q of %q: %v", d, text, err)
			}
		}
		if h.Missing < 0 || len(h.Why) > 500 {
			t.Errorf("report %q: got %d missing and %d bytes of why", text, h.Missing, len(h.Why))
		}
	})
}

// TestStandbyName: processes of one host have names of their own, whatever the host is called.
func TestStandbyName(t *testing.T) {
	seen := map[string]bool{}
	for _, host := range []string{"web-1.example.com", "", "Ünïcode", strings.Repeat("long", 40), "---"} {
		for _, dir := range []string{"/var/lib/a", "/var/lib/b"} {
			name := StandbyName(host, dir)
			if err := skerry.CheckName(name); err != nil {
				t.Errorf("name of a process at %q in %s: %v", host, dir, err)
			}
			if seen[name+host] {
				t.Errorf("name of two processes at %q: %s", host, name)
			}
			seen[name+host] = true
		}
	}
}
