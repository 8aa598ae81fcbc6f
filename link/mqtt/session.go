package mqtt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// Topics. A name of a worker has no slash.
const (
	topicPrefix = "skerry/"
	topicUp     = "/up"   // from the device
	topicDown   = "/down" // to it
	joiner      = "join/device"
)

// session is one connection.
type session struct {
	l    *Listener
	raw  net.Conn
	from string // where it comes from, see sourceOf
	tls  *tls.Conn
	cs   tls.ConnectionState
	id   wire.PeerIdentity // zero: one that may join

	v5        bool
	maxPacket uint32
	keepAlive time.Duration
	up, down  string

	subscribed bool
	over       bool // it was answered for good
	admitted   atomic.Bool

	write sync.Mutex // of packets

	link net.Conn // our end of the pipe; nil before Hello
	wg   sync.WaitGroup
}

// reasonOf says in a word why a connection ended.
func reasonOf(err error) string {
	var end *endError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return "closed"
	case errors.As(err, &end):
		return end.reason
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silent"
	case errors.Is(err, errTooLarge), errors.Is(err, frame.ErrTooLarge):
		return "too-large"
	case errors.Is(err, errMalformed), errors.Is(err, frame.ErrMalformed):
		return "malformed"
	}
	return "reset"
}

func (s *session) serve() error {
	begun := time.Now()
	s.raw.SetDeadline(begun.Add(greetTime))
	ctx, cancel := context.WithTimeout(s.l.ctx, greetTime)
	defer cancel()
	if err := s.tls.HandshakeContext(ctx); err != nil {
		return &endError{"handshake", codeNotAuthorised, err}
	}
	s.cs = s.tls.ConnectionState()
	err := s.greet()
	if err == nil {
		err = s.loop(begun)
	}
	if err != nil {
		s.farewell(err)
	}
	return err
}

// greet takes CONNECT.
func (s *session) greet() error {
	pkt, err := readPacket(s.tls, s.limit)
	if err != nil {
		return err
	}
	if pkt.kind != kindConnect {
		return malformed("the first packet is no CONNECT")
	}
	c, err := parseConnect(pkt)
	s.v5 = c.v5
	if errors.Is(err, errVersion) {
		s.send(connack(s.v5, s.code(codeVersion, v4Version), 0))
		return &endError{"version", 0, err}
	}
	if err != nil {
		return err
	}
	s.maxPacket = c.maxPacket
	if c.will {
		s.send(connack(s.v5, s.code(codeNotAuthorised, v4NotAuthorised), 0))
		return &endError{"will", 0, errors.New("there are no wills here: the end of the connection is noticed")}
	}
	name := joiner
	if len(s.cs.PeerCertificates) > 0 {
		if s.id, err = s.l.cfg.Identify(s.cs); err != nil {
			s.send(connack(s.v5, s.code(codeNotAuthorised, v4NotAuthorised), 0))
			return &endError{"handshake", 0, err}
		}
		name = s.id.Name
	}
	s.up, s.down = topicPrefix+name+topicUp, topicPrefix+name+topicDown
	s.keepAlive = time.Duration(c.keepAlive) * time.Second
	told := 0
	if s.keepAlive <= 0 || s.keepAlive > s.l.cfg.KeepAlive {
		s.keepAlive = s.l.cfg.KeepAlive
		told = max(int(s.keepAlive/time.Second), 1)
	}
	return s.send(connack(s.v5, codeSuccess, told))
}

// limit is how long a packet may be.
func (s *session) limit() int {
	if s.admitted.Load() {
		return maxPacket
	}
	return maxGreeting
}

// patience is how long the device may be quiet.
func (s *session) patience() time.Duration { return s.keepAlive + s.keepAlive/2 }

// code gives the code for the client's version.
func (s *session) code(v5, v4 byte) byte {
	if s.v5 {
		return v5
	}
	return v4
}

// loop takes packets until the connection ends.
func (s *session) loop(begun time.Time) error {
	counted, n := time.Now(), 0
	for !s.over {
		deadline := time.Now().Add(s.patience())
		if by := begun.Add(greetTime); !s.admitted.Load() && by.Before(deadline) {
			deadline = by
		}
		s.raw.SetReadDeadline(deadline)
		p, err := readPacket(s.tls, s.limit)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && !s.admitted.Load() {
				return &endError{"late", codeKeepAlive, errors.New("it did not come to the point")}
			}
			return err
		}
		if p.kind == kindDisconnect {
			return nil
		}
		if err := s.packet(p); err != nil {
			return err
		}
		// A flood is slowed down by not reading, which TCP passes on.
		if n++; n == 256 {
			if ahead := 256*time.Second/packetRate - time.Since(counted); ahead > 0 {
				time.Sleep(ahead)
			}
			counted, n = time.Now(), 0
		}
	}
	return &endError{"answered", codeSuccess, errors.New("this was all")}
}

func (s *session) packet(pkt packet) error {
	switch pkt.kind {
	case kindPublish:
		m, err := parsePublish(pkt, s.v5)
		if err != nil {
			return err
		}
		if m.topic != s.up {
			return &endError{"topic", codeNotAuthorised, fmt.Errorf("a message for %.100q; this device publishes on %q alone", m.topic, s.up)}
		}
		if !s.subscribed {
			return &endError{"unsubscribed", codeProtocolError, fmt.Errorf("subscribe to %q first", s.down)}
		}
		if err := s.message(m.payload); err != nil {
			return err
		}
		if m.qos == 1 {
			return s.send(puback(m.id))
		}
		return nil
	case kindSubscribe, kindUnsubscribe:
		return s.subscribe(pkt)
	case kindPingreq:
		if s.link == nil {
			return s.send(encode(kindPingresp, 0))
		}
		return frame.Write(s.link, s.l.codec, &wire.Ping{}) // the session's Pong becomes the answer
	}
	return &endError{"order", codeProtocolError, fmt.Errorf("a packet of kind %d has no place here", pkt.kind)}
}

func (s *session) subscribe(pkt packet) error {
	id, filters, err := parseSubscribe(pkt, s.v5)
	if err != nil {
		return err
	}
	codes := make([]byte, len(filters))
	for i, f := range filters {
		switch {
		case pkt.kind == kindUnsubscribe:
			s.subscribed = s.subscribed && f != s.down
		case f == s.down:
			s.subscribed = true
		default:
			codes[i] = s.code(codeNotAuthorised, v4Failure)
			s.l.stats.count("topic")
		}
	}
	answer := byte(kindSuback)
	if pkt.kind == kindUnsubscribe {
		answer = kindUnsuback
	}
	if err := s.send(suback(answer, s.v5, id, codes)); err != nil {
		return err
	}
	if pkt.kind == kindUnsubscribe && !s.subscribed && s.link != nil {
		return &endError{"unsubscribed", codeProtocolError, errors.New("a device that does not listen is of no use")}
	}
	return nil
}

// message takes a message of the control protocol.
func (s *session) message(payload []byte) error {
	msg, err := frame.DecodeJSON(payload)
	if err != nil {
		s.publish(&wire.Refuse{Code: wire.RefuseMalformed, Reason: err.Error(), Hint: "docs/EXTERNAL-AGENTS.md describes the messages"})
		return err
	}
	s.l.stats.In.Add(1)
	joins := s.id.Name == ""
	switch m := msg.(type) {
	case nil:
		s.l.stats.count("unknown-type")
		return nil
	case *wire.Join:
		if !joins {
			return s.misplaced(m, "this device has joined; Join comes on a connection without a certificate")
		}
		s.over = true
		return s.answer(m)
	case *wire.Renew:
		if !joins {
			return s.answer(m)
		}
	case *wire.Hello:
		if !joins && s.link == nil {
			s.carry()
		}
	}
	if s.link == nil {
		return s.misplaced(msg, "a device that has joined begins with Hello, another with Join")
	}
	return frame.Write(s.link, s.l.codec, msg)
}

func (s *session) misplaced(m wire.Message, why string) error {
	s.publish(&wire.Refuse{Code: wire.RefuseMalformed, Reason: fmt.Sprintf("%s has no place here: %s", m.FrameType(), why)})
	return &endError{"order", codeProtocolError, errors.New(why)}
}

func (s *session) answer(m wire.Message) error {
	ctx, cancel := context.WithTimeout(s.l.ctx, greetTime)
	defer cancel()
	return s.publish(s.l.cfg.Answer(ctx, m, s.cs, s.raw.RemoteAddr().String()))
}

// carry begins the session behind the pipe.
func (s *session) carry() {
	// Whether the device lives is seen here; the session behind must not give up sooner because a line is slow.
	keepAlive := max(s.keepAlive, writeTime)
	ours, theirs := net.Pipe()
	s.link = ours
	s.wg.Go(func() { s.l.cfg.Carry(&pipeEnd{theirs, s.raw}, s.id, wire.CarrierMQTT, keepAlive) })
	s.wg.Go(func() {
		defer s.raw.Close()
		defer panics.Catch(s.l.cfg.Log, "an MQTT session")
		err := s.downward()
		s.l.cfg.Log.Debug("mqtt session", "name", s.id.Name, "err", err)
	})
}

// pipeEnd is the session's end of the pipe, which tells where the device is.
type pipeEnd struct {
	net.Conn
	device net.Conn
}

func (p *pipeEnd) RemoteAddr() net.Addr { return p.device.RemoteAddr() }

// downward passes on what the session says until it ends.
func (s *session) downward() error {
	in := frame.NewReader(s.link, s.l.codec, frame.MaxFrame)
	defer func() {
		if s.admitted.Load() {
			s.l.stats.Live.Add(-1)
		}
	}()
	for {
		msg, _, err := in.Next()
		if err != nil {
			s.send(disconnect(s.v5, codeShuttingDown, "the session has ended"))
			return err
		}
		switch m := msg.(type) {
		case nil:
			continue
		case *wire.Welcome:
			s.admitted.Store(true)
			s.l.stats.Live.Add(1)
			s.l.greeted(s)
			s.raw.SetReadDeadline(time.Now().Add(s.patience()))
		case *wire.Pong:
			if m.Nonce == 0 {
				if err := s.send(encode(kindPingresp, 0)); err != nil {
					return err
				}
				continue
			}
		}
		if err := s.publish(msg); err != nil {
			return err
		}
	}
}

// publish sends a message to the device.
func (s *session) publish(m wire.Message) error {
	text, err := frame.EncodeJSON(m)
	if err != nil {
		return err
	}
	p := message(s.v5, s.down, text)
	if s.maxPacket > 0 && len(p) > int(s.maxPacket) {
		return &endError{"too-large", codePacketTooBig, fmt.Errorf("%s has %d bytes, and the device takes %d", m.FrameType(), len(p),
			s.maxPacket)}
	}
	s.l.stats.Out.Add(1)
	return s.send(p)
}

// send writes one packet.
func (s *session) send(p []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	s.raw.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := s.tls.Write(p)
	return err
}

// farewell tells a device of MQTT 5 why it has to go.
func (s *session) farewell(err error) {
	code, why := byte(codeMalformed), err.Error()
	var end *endError
	switch {
	case errors.As(err, &end):
		code = end.code
	case errors.Is(err, errTooLarge):
		code = codePacketTooBig
	case reasonOf(err) == "silent":
		code = codeKeepAlive
	case reasonOf(err) != "malformed":
		return // there is nobody to tell
	}
	if p := disconnect(s.v5, code, why); p != nil {
		s.send(p)
	}
}

// end closes what is open and waits for what runs.
func (s *session) end() {
	if s.link != nil {
		s.link.Close()
	}
	if s.tls.ConnectionState().HandshakeComplete {
		s.raw.SetWriteDeadline(time.Now().Add(time.Second))
		s.tls.CloseWrite()
	}
	s.raw.Close()
	s.wg.Wait()
}
