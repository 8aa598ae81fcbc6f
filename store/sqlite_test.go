//go:build linux

package store_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
)

// crashChild writes until it is killed, and tells each acknowledged commit on stdout: writer, number, revision.
func crashChild(path string) {
	ctx := context.Background()
	s, err := store.Open(ctx, "sqlite:"+path, store.Options{KeepRevisions: 200})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	start, _ := strconv.Atoi(os.Getenv("STORE_CRASH_START"))
	for w := range 4 {
		go func() {
			for i := start; ; i++ {
				v := []byte(strconv.Itoa(i))
				rev, err := s.Commit(ctx, []store.Op{
					{Key: fmt.Sprintf("w%d/left", w), Value: v},
					{Key: fmt.Sprintf("w%d/pad", w), Value: bytes.Repeat(v, 1+i%300)},
					{Key: fmt.Sprintf("w%d/right", w), Value: v}})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Fprintf(os.Stdout, "%d %d %d\n", w, i, rev) // one write call, so whole or absent
			}
		}()
	}
	select {}
}

func TestSQLiteCrash(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "crash.db")
	acked := map[string]int{} // writer -> highest number
	lastRev, start := int64(0), 0
	for k := range testenv.Times(10, 100) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_CRASH_CHILD="+path, fmt.Sprint("STORE_CRASH_START=", start))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Kill after a random number of acknowledgements and a random moment more.
		after := rand.IntN(200)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var w, i int
			var rev int64
			if _, err := fmt.Sscan(lines.Text(), &w, &i, &rev); err != nil {
				t.Fatalf("child wrote %q", lines.Text())
			}
			acked[fmt.Sprintf("w%d", w)] = i
			lastRev, start = max(lastRev, rev), max(start, i+1)
			if n == after {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cmd.Process.Signal(syscall.SIGKILL) })
			}
		}
		cmd.Wait()
		if stderr.Len() > 0 {
			t.Fatalf("child: %s", stderr.String())
		}
		s := mustOpen(t, "sqlite:"+path)
		rs, rev, err := s.List(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if rev < lastRev {
			t.Fatalf("kill %d: revision %d after %d was acknowledged", k, rev, lastRev)
		}
		got := map[string]store.Record{}
		for _, r := range rs {
			got[r.Key] = r
		}
		for w, n := range acked {
			left, right := got[w+"/left"], got[w+"/right"]
			have, _ := strconv.Atoi(string(left.Value))
			if have < n {
				t.Fatalf("kill %d: %s was acknowledged at %d and is at %d", k, w, n, have)
			}
			if !bytes.Equal(left.Value, right.Value) || left.Revision != right.Revision {
				t.Fatalf("kill %d: half a commit: %s and %s", k, left.Value, right.Value)
			}
			start = max(start, have+1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSQLiteFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("this test mounts a tmpfs and needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ctx := context.Background()
	s := mustOpen(t, "sqlite:"+filepath.Join(dir, "a.db"))
	defer s.Close()
	if _, err := s.Commit(ctx, []store.Op{{Key: "first", Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	fill := func() (n int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 1000 {
					_, err := s.Commit(ctx, []store.Op{{Key: fmt.Sprintf("k/%d/%d", w, i), Value: make([]byte, 30_000)}})
					if err != nil {
						if !errors.Is(err, store.ErrFull) {
							t.Errorf("a full disk gives %v", err)
						}
						return
					}
					mu.Lock()
					n++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return n
	}
	n := fill()
	rs, _, err := s.List(ctx, "")
	if err != nil || len(rs) != n+1 {
		t.Fatalf("%d records are there and %d were acknowledged (%v)", len(rs), n+1, err)
	}
	if n > 500 {
		t.Fatalf("%d commits fitted: the disk was not full", n)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, []store.Op{{Key: "again", Value: make([]byte, 100_000)}}); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, "sqlite:"+filepath.Join(dir, "a.db"))
	defer s.Close()
	if again, _, err := s.List(ctx, ""); err != nil || len(again) != n+2 {
		t.Fatalf("%d records after re-opening, want %d (%v)", len(again), n+2, err)
	}
}

func TestSQLiteRefuses(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.db")
	s := mustOpen(t, "sqlite:"+path)
	if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a second opener gets %v", err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if st, err := os.Stat(path + suffix); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path+suffix, st.Mode(), err)
		}
	}
	s.Close()
	other := filepath.Join(dir, "other.db")
	exec1 := func(path, q string) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	exec1(other, "CREATE TABLE theirs (x)")
	exec1(path, "PRAGMA user_version = 99")
	for path, says := range map[string]string{other: "another program", path: "newer program", filepath.Join(dir, "no", "such"): "no such file"} {
		if _, err := store.Open(ctx, "sqlite:"+path, store.Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", path, err, says)
		}
	}
}

func TestSQLiteHistoryIsBounded(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := store.Open(ctx, "sqlite:"+path, store.Options{KeepRevisions: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var revs []int64
	for i := range 2000 {
		rev, err := s.Commit(ctx, []store.Op{{Key: "k", Value: bytes.Repeat([]byte{byte(i)}, 2000)}})
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, rev)
	}
	if err := s.Watch(ctx, "", revs[1000], nil); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("old history: %v", err)
	}
	enough := errors.New("enough")
	if err := s.Watch(ctx, "", revs[1899], func([]store.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("kept history: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 1<<20 {
		t.Errorf("the file has %d bytes (%v)", st.Size(), err)
	}
}

// TestSQLiteHistoryTakesNoMoreRoomThanRecords: large changes do not fill the disk with what only watchers ask for, those that come soon
// find it there nevertheless, and a file with more records keeps more.
func TestSQLiteHistoryTakesNoMoreRoomThanRecords(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		name           string
		records        int // of 1 MiB each
		least, history int64
	}{{"one record", 1, 3 * MiB, 5 * MiB}, {"as many as there is history", 12, 11 * MiB, 15 * MiB}} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			opened, err := store.Open(t.Context(), "sqlite:"+path, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			var revisions []int64
			for n := range 60 {
				rev, err := opened.Commit(t.Context(), []store.Op{{Key: fmt.Sprint(n % c.records), Value: bytes.Repeat([]byte{byte(n)}, MiB)}})
				if err != nil {
					t.Fatal(err)
				}
				revisions = append(revisions, rev)
			}
			if err := opened.Watch(t.Context(), "", revisions[20], nil); !errors.Is(err, store.ErrCompacted) {
				t.Errorf("the history of 40 changes ago: got %v, want %v", err, store.ErrCompacted)
			}
			enough := errors.New("enough")
			if err := opened.Watch(t.Context(), "", revisions[57], func([]store.Event) error { return enough }); !errors.Is(err, enough) {
				t.Errorf("the history of the last changes: got %v, want it", err)
			}
			if err := opened.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var size int64
			if err := db.QueryRow("SELECT sum(length(data)) FROM change").Scan(&size); err != nil || size < c.least || size > c.history {
				t.Errorf("history has %d bytes (%v), want %d to %d", size, err, c.least, c.history)
			}
		})
	}
}

func benchmarkCommit(b *testing.B, s store.Store, writers int) {
	ctx := context.Background()
	value := make([]byte, 256)
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			var v [256]byte
			copy(v[:], value)
			for i := w; i < b.N; i += writers {
				binary.LittleEndian.PutUint64(v[:], uint64(i))
				if _, err := s.Commit(ctx, []store.Op{{Key: fmt.Sprintf("bench/%d/%d", w, i%1000), Value: v[:]}}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("sqlite/%d", writers), func(b *testing.B) {
			s := mustOpen(b, "sqlite:"+filepath.Join(b.TempDir(), "a.db"))
			defer s.Close()
			benchmarkCommit(b, s, writers)
		})
		b.Run(fmt.Sprintf("memory/%d", writers), func(b *testing.B) {
			s := mustOpen(b, "memory:")
			defer s.Close()
			benchmarkCommit(b, s, writers)
		})
		b.Run(fmt.Sprintf("etcd/%d", writers), func(b *testing.B) {
			s := mustOpen(b, startEtcd(b)+"/bench")
			defer s.Close()
			benchmarkCommit(b, s, writers)
		})
	}
}

// BenchmarkOpen opens a file of 100,000 records, which is checked, and reads all of them, as a role does that starts.
func BenchmarkOpen(b *testing.B) {
	const records, ops = 100_000, 1000
	ctx, url := context.Background(), "sqlite:"+filepath.Join(b.TempDir(), "a.db")
	s := mustOpen(b, url)
	for n := 0; n < records; n += ops {
		var list []store.Op
		for at := range ops {
			list = append(list, store.Op{Key: fmt.Sprintf("inst/%06d", n+at), Value: bytes.Repeat([]byte{byte(at)}, 1500)})
		}
		if _, err := s.Commit(ctx, list); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := mustOpen(b, url)
		got := 0
		if err := store.Scan(ctx, s, func(store.Record) error { got++; return nil }); err != nil || got != records {
			b.Fatalf("%d records, want %d: %v", got, records, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
