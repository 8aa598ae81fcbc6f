package cluster

import (
	"io"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
)

const (
	// sendWait is how long a worker may send nothing of a snapshot, and sendLeast how many bytes a second it has to send beside that. A volume
	// that another worker restores has no instance meanwhile, and others wait to be sent away.
	sendWait  = 2 * time.Minute
	sendLeast = 4 << 10
)

// steady is what a worker sends, which ends with an error once that has been waited for too long. The time that whoever reads takes does
// not count.
type steady struct {
	io.ReadCloser
	worker string
	read   int64
	waited time.Duration
}

func (s *steady) Read(p []byte) (int, error) {
	var late atomic.Bool
	// What came fast lets what follows be slower, and nothing may still not come for longer.
	left := min(sendWait, sendWait+time.Duration(s.read/sendLeast)*time.Second-s.waited)
	began := time.Now()
	t := time.AfterFunc(max(0, left), func() {
		late.Store(true)
		_ = s.ReadCloser.Close()
	})
	n, err := s.ReadCloser.Read(p)
	t.Stop()
	s.read, s.waited = s.read+int64(n), s.waited+time.Since(began)
	if late.Load() {
		return n, skerry.Errorf(skerry.CodeUnavailable, "worker %s sends its snapshot too slowly, or not at all: %s in %s", s.worker,
			skerry.Bytes(s.read), s.waited.Round(time.Second)).WithHint("try again, or use another snapshot")
	}
	return n, err
}
