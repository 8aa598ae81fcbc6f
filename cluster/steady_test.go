package cluster

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
)

// TestSnapshotThatDoesNotCome has a worker send a snapshot that another one restores: the volume has no instance until that ends.
func TestSnapshotThatDoesNotCome(t *testing.T) {
	for name, tt := range map[string]struct {
		every  time.Duration // between two pieces
		pieces int           // of 64 KiB; the end follows
		then   time.Duration // it ends after so long
		reader time.Duration // takes so long for each
		whole  bool
	}{
		"a slow link":                  {every: 10 * time.Second, pieces: 1000, whole: true},
		"a worker that unpacks slowly": {pieces: 20, reader: time.Hour, whole: true},
		"a pause":                      {every: 100 * time.Second, pieces: 1, whole: true},
		"nothing":                      {every: 1000 * time.Hour, pieces: 1},
		"much, then nothing":           {pieces: 1000, then: 1000 * time.Hour},
		"less and less":                {every: time.Minute, pieces: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				var sending sync.WaitGroup
				sending.Go(func() {
					defer to.Close()
					for range tt.pieces {
						time.Sleep(tt.every)
						if _, err := to.Write(make([]byte, 64<<10)); err != nil {
							return
						}
					}
					time.Sleep(tt.then)
				})
				in := &steady{ReadCloser: from, worker: "w1"}
				began, got, piece := time.Now(), 0, make([]byte, 64<<10)
				var err error
				for err == nil {
					var n int
					n, err = in.Read(piece)
					got += n
					time.Sleep(tt.reader)
				}
				whole := err == io.EOF && got == tt.pieces*64<<10
				if whole != tt.whole || !whole && skerry.AsError(err).Code != skerry.CodeUnavailable {
					t.Errorf("%d bytes, then %v; want all of them: %v", got, err, tt.whole)
				}
				if took := time.Since(began); !whole && took > 10*time.Minute {
					t.Errorf("it was given up after %s", took)
				}
				from.Close()
				sending.Wait()
			})
		})
	}
}
