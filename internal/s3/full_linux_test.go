package s3

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
)

// A server whose disk is full says so, is not asked again and again, and keeps no part; what was there before stays,
// and the next upload goes through once there is room.
func TestServerIsFull(t *testing.T) {
	server := testenv.NewS3(t, "../..")
	server.Bucket(t, "backups")
	server.Setenv(t)
	dir := filepath.Join(server.Dir, "backups")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=14m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	old := object(t, "s3://backups/old")
	upload(t, old, content(1<<20))
	for _, size := range []int{14 << 20, 30 << 20} { // it is full in one part, or in another
		large := object(t, "s3://backups/large")
		large.parts = 16 << 20
		if size > 16<<20 {
			large.parts = 5 << 20
		}
		asked := &faults{large.http.Transport, 0, func(int, *http.Request) string { return "" }, 0}
		large.http.Transport = asked
		_, err := large.Upload(t.Context(), bytes.NewReader(content(size)), int64(size))
		refused(t, "a full disk", err, skerry.CodeUnavailable, "has no room", "make room")
		if asked.n > 8 { // a part, or the beginning, five parts at most, and the end of it
			t.Errorf("it was asked %d times", asked.n)
		}
		if id := uploads(t, large); id != "" {
			t.Errorf("upload %s is left", id)
		}
	}
	if got, err := download(t.Context(), old); err != nil || len(got) != 1<<20 {
		t.Errorf("of what was there before %d bytes are read, %v", len(got), err)
	}
	if err := os.Remove(filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	upload(t, object(t, "s3://backups/next"), content(4<<20))
}

// Whoever asks by a clock that is an hour off is told so, whatever they ask for.
func TestClockIsOff(t *testing.T) {
	server := testenv.NewS3(t, "../..")
	server.Bucket(t, "backups")
	server.Setenv(t)
	upload(t, object(t, "s3://backups/db"), content(100))
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		off := func() time.Time { return time.Now().Add(off) }
		late := object(t, "s3://backups/db")
		late.now = off
		_, err := late.Upload(t.Context(), bytes.NewReader(content(100)), 100)
		refused(t, "an upload", err, skerry.CodeUnavailable, "clock", "set the clock")
		_, err = download(t.Context(), late)
		refused(t, "a download", err, skerry.CodeUnavailable, "clock", "set the clock")
		refused(t, "a deletion", late.Delete(t.Context()), skerry.CodeUnavailable, "clock", "set the clock")
	}
	if got, err := download(t.Context(), object(t, "s3://backups/db")); err != nil || len(got) != 100 {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
}
