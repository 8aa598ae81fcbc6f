package relay

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay/relay/frame"
)

// stream is a worker's TLS connection.
type stream struct {
	conn *tls.Conn
	raw  net.Conn
	m    atomic.Pointer[member] // nil until it has registered
	end  chan struct{}
	once sync.Once

	mu    sync.Mutex
	queue []byte
	ready chan struct{} // holds one token while queue is not empty
}

const (
	// maxQueue is how much may wait for a worker, in bytes. More is lost, as on any slow link.
	maxQueue = 512 << 10
	// admitFor is how long a worker may take to register.
	admitFor = 10 * time.Second
)

func (s *Server) accept() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			select {
			case <-s.end:
				return
			case <-time.After(50 * time.Millisecond): // too many files are open, say
				continue
			}
		}
		st := &stream{conn: tls.Server(conn, s.tls), raw: conn, end: make(chan struct{}), ready: make(chan struct{}, 1)}
		s.table.RLock()
		most := maxStreams + len(s.table.workers)
		s.table.RUnlock()
		s.mu.Lock()
		ok := len(s.streams) < most
		if ok {
			s.streams[st] = true
		}
		s.mu.Unlock()
		if !ok {
			s.count.streams.Add(1)
			conn.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() {
				st.close()
				s.table.gone(st)
				s.mu.Lock()
				delete(s.streams, st)
				s.mu.Unlock()
			}()
			defer panics.Catch(s.log, "a stream at the relay")
			err := s.serve(st)
			s.log.Debug("stream ended", "from", conn.RemoteAddr(), "err", err)
		})
	}
}

// serve forwards what comes by a stream.
func (s *Server) serve(st *stream) error {
	_ = st.conn.SetDeadline(time.Now().Add(admitFor))
	ctx, cancel := context.WithTimeout(context.Background(), admitFor)
	defer cancel()
	if err := st.conn.HandshakeContext(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(st.write)
	defer wg.Wait()
	defer st.close()
	from := st.conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	f := s.newForwarder()
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := st.conn.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		f.now = time.Now()
		left, err := f.frames(st, from, buf[:have])
		if err != nil {
			return err
		}
		have = copy(buf, left)
	}
}

// frames takes the whole frames in b and gives what is left.
func (f *forwarder) frames(st *stream, from netip.AddrPort, data []byte) ([]byte, error) {
	for len(data) >= frame.StreamLen {
		n, ok := frame.Length(data)
		if !ok {
			return nil, errStream
		}
		if len(data) < frame.StreamLen+n {
			break
		}
		d := data[frame.StreamLen : frame.StreamLen+n]
		data = data[frame.StreamLen+n:]
		if d[0] == frame.TypeRegister {
			a := f.t.register(d, from, st, f.now)
			if a == nil {
				return nil, errStream
			}
			st.put(a, len(a))
			if st.m.Load() != nil {
				_ = st.conn.SetDeadline(time.Time{})
				_ = st.conn.SetReadDeadline(f.now.Add(life))
			}
			continue
		}
		m := st.m.Load()
		if m == nil {
			return nil, errStream
		}
		f.t.RLock()
		if p := m.place(f.now); p != nil && p.out == st {
			f.datagram(m, p, d, 0, len(d))
			f.flush()
		}
		f.t.RUnlock()
	}
	return data, nil
}

// put queues frames of seg bytes each, the last of which may be shorter; false: not all found room.
func (s *stream) put(b []byte, seg int) bool {
	s.mu.Lock()
	ok := true
	for len(b) > 0 {
		n := min(seg, len(b))
		if len(s.queue)+n+frame.StreamLen > maxQueue {
			ok = false
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
	return ok
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

func (s *stream) close() {
	s.once.Do(func() {
		close(s.end)
		s.raw.Close() // without a farewell, for which one might have to wait
	})
}
