package tunnel

import (
	"crypto/tls"
	"os"
	"sync"
	"sync/atomic"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay/relay/frame"
)

// stream is a TLS connection to a relay.
type stream struct {
	r    *relayClient
	conn *tls.Conn
	end  chan struct{}
	once sync.Once

	mu    sync.Mutex
	queue []byte // frames that wait for the writer
	err   error
	ready chan struct{} // holds one token while queue is not empty

	ended atomic.Bool
}

// maxQueue is how much may wait for a stream, in bytes. More is lost, as on any slow link.
const maxQueue = 512 << 10

func newStream(r *relayClient, c *tls.Conn) *stream {
	return &stream{r: r, conn: c, end: make(chan struct{}), ready: make(chan struct{}, 1)}
}

// put queues frames of seg bytes each, the last of which may be shorter.
func (s *stream) put(b []byte, seg int) {
	s.mu.Lock()
	for len(b) > 0 {
		n := min(seg, len(b))
		if len(s.queue)+n+frame.StreamLen > maxQueue {
			s.r.e.count.sendErr.Add(1)
			break
		}
		s.queue = append(frame.AppendLength(s.queue, n), b[:n]...)
		b = b[n:]
	}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// run writes and reads until the connection ends.
func (s *stream) run() {
	var wg sync.WaitGroup
	wg.Go(s.write)
	err := s.read()
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.close()
	wg.Wait()
	s.ended.Store(true)
}

func (s *stream) write() {
	var spare []byte
	for {
		select {
		case <-s.end:
			return
		case <-s.ready:
		}
		s.mu.Lock()
		b := s.queue
		s.queue, spare = spare[:0], nil
		s.mu.Unlock()
		if len(b) == 0 {
			continue
		}
		if _, err := s.conn.Write(b); err != nil {
			s.close()
			return
		}
		if spare = b; cap(b) > maxQueue/4 {
			spare = nil
		}
	}
}

// read gives frames to a receiver where they lie.
func (s *stream) read() (err error) {
	defer panics.Error(&err)
	rc := newReceiver(s.r.e)
	rc.stream = s
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := s.conn.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		rc.now = s.r.e.now()
		b := buf[:have]
		for len(b) >= frame.StreamLen {
			n, ok := frame.Length(b)
			if !ok {
				return os.ErrInvalid
			}
			if len(b) < frame.StreamLen+n {
				break
			}
			rc.relayed(s.r, b[frame.StreamLen:frame.StreamLen+n:frame.StreamLen+n])
			b = b[frame.StreamLen+n:]
		}
		rc.flush()
		have = copy(buf, b)
	}
}

func (s *stream) done() bool { return s.ended.Load() }

func (s *stream) error() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stream) close() {
	s.once.Do(func() {
		close(s.end)
		s.conn.NetConn().Close() // without a farewell, for which one might have to wait
	})
}
