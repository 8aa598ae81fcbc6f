package tunnel

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/relay/frame"
)

// sender seals packets and sends them in batches. One goroutine uses it.
type sender struct {
	e       *Engine
	split   splitter
	nonce   [12]byte
	scratch frame.Scratch
	t       transmitter
	// A batch: datagrams of one length but the last, for one path.
	out   []byte
	seg   int
	n     int
	short bool
	via   *path
}

func newSender(e *Engine) *sender { return &sender{e: e, out: make([]byte, 0, maxBatch+2048)} }

// frame takes a frame of the tap. It changes it.
func (s *sender) frame(f []byte) {
	engine := s.e
	if err := s.split.begin(f); err != nil || s.split.label.kind != overlay.FrameData {
		engine.count.malformed.Add(1)
		return
	}
	p := (*engine.peers.Load())[s.split.label.peer]
	if p == nil {
		engine.count.noPeer.Add(1)
		return
	}
	if mtu := engine.mtu.Load(); mtu > 0 && int64(s.split.size) > mtu+metaLen {
		engine.count.tooBig.Add(1)
		return
	}
	sess, via := p.send.Load(), p.via.Load()
	now := engine.now()
	p.dataTx.Store(int64(now))
	if sess == nil || via == nil || now-sess.made > engine.timing.RejectAfter || sess.counter.Load() > counterMax-maxSegments*2 {
		if !p.hold(f) {
			engine.count.full.Add(1)
		}
		engine.post(func() { engine.want(p) })
		return
	}
	s.packets(p, sess, via)
}

// packets sends what the splitter has.
func (s *sender) packets(p *peer, sess *session, via *path) {
	k := s.split.left()
	if s.n > 0 && k > 1 && (s.n+k > maxSegments || len(s.out)+k*(s.split.size+tagLen+headerLen+frame.DataLen) > maxBatch) {
		s.flush() // what was one large segment here goes at once, so that it can become one again
	}
	counter := sess.counter.Add(uint64(k)) - uint64(k)
	bytes := 0
	for b := s.split.next(); b != nil; b = s.split.next() {
		bytes += len(b) - metaLen
		s.add(sess, via, typeData, counter, b)
		counter++
	}
	p.tx.Add(int64(bytes))
	s.e.count.tx.Add(int64(k))
}

// add puts a datagram into the batch, which goes when it is full or of another kind.
func (s *sender) add(sess *session, via *path, typ byte, counter uint64, data []byte) {
	need := headerLen + len(data) + tagLen
	if via.relay != nil {
		need += frame.DataLen
	}
	if s.n > 0 && (s.via != via || s.short || need > s.seg || s.n == maxSegments || len(s.out)+need > maxBatch) {
		s.flush()
	}
	if s.n == 0 {
		s.via, s.seg = via, need
	}
	s.short = need < s.seg
	n := len(s.out)
	if r := via.relay; r != nil {
		s.out = s.out[:n+frame.DataLen]
		s.out = sess.seal(s.out, &s.nonce, typ, counter, data)
		r.out.Put(s.out[n:], 0, via.id, r.self, &s.scratch)
	} else {
		s.out = sess.seal(s.out, &s.nonce, typ, counter, data)
	}
	s.n++
}

// flush sends the batch.
func (s *sender) flush() {
	if s.n == 0 {
		return
	}
	s.transmit(s.via, s.out, s.seg)
	s.out, s.n, s.short, s.via = s.out[:0], 0, false, nil
}

// transmit sends datagrams that are ready.
func (s *sender) transmit(via *path, b []byte, seg int) {
	if r := via.relay; r != nil && r.stream(b, seg) {
		return
	}
	sock := s.e.sock.Load()
	if sock == nil {
		return
	}
	s.e.count.sends.Add(1)
	raw := &via.raw
	if via.relay != nil {
		raw = &via.relay.raw
	}
	if err := s.t.send(sock, raw, b, seg); err != nil {
		s.e.count.sendErr.Add(1)
	}
}

// plain sends a datagram that is no data, such as a handshake.
func (s *sender) plain(via *path, b []byte) {
	if r := via.relay; r != nil {
		b = append(make([]byte, frame.DataLen, frame.DataLen+len(b)), b...)
		r.out.Put(b, 0, via.id, r.self, &s.scratch)
	}
	s.transmit(via, b, len(b))
}

// tapReader is the goroutine that reads the tap.
type tapReader struct {
	e    *Engine
	fd   int
	wake wake
	wg   sync.WaitGroup
}

func newTapReader(e *Engine, fd int) (*tapReader, error) {
	w, err := newWake()
	if err != nil {
		return nil, err
	}
	return &tapReader{e: e, fd: fd, wake: w}, nil
}

func (r *tapReader) run() { r.wg.Go(func() { panics.Again(r.e.log, "frames of the tap", r.read) }) }

// yields is how often a goroutine in the midst of a large transfer lets others run, and looks again, before it sleeps:
// waking a thread on another processor costs as much as some packets do.
const yields = 4

// read seals what the tap gives. A batch goes as soon as the tap has no more.
func (r *tapReader) read() {
	runtime.LockOSThread() // waiting in the kernel: the thread is woken at once
	defer runtime.UnlockOSThread()
	s := newSender(r.e)
	buf := make([]byte, frameLen+maxIP+1)
	for r.wake.wait(r.fd) {
		spins, bulk := 0, false
		for range 256 { // then look whether the end has come
			n, err := readTap(r.fd, buf)
			if err != 0 {
				if err != unix.EAGAIN { // somebody has deleted the tap; Set with another name, or a restart, cures that
					time.Sleep(50 * time.Millisecond)
				}
				if s.n == 0 {
					if spins == yields || !bulk {
						break
					}
					spins++
					yield()
					continue
				}
				bulk = s.n >= 16
				s.flush() // meanwhile more may have come
				continue
			}
			r.e.count.reads.Add(1)
			s.frame(buf[:n])
			spins = 0
			if s.n >= maxSegments/2 {
				bulk = true
				s.flush()
			}
		}
		s.flush()
	}
}

// close ends the goroutine and waits for it.
func (r *tapReader) close() {
	if r == nil {
		return
	}
	r.wake.wake()
	r.wg.Wait()
	unix.Close(r.wake.fd)
}
