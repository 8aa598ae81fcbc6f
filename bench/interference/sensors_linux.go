package interference

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"skerry.dev/skerry/link/mqtt"
)

// sensors asks the MQTT stream service: a request is a message through its broker to a subscriber, and the subscriber's
// back. All go over one connection.
type sensors struct {
	addr           string
	messages, sums []string

	mu      sync.Mutex // of what follows, and of writing
	conn    net.Conn   // nil: none
	next    uint64
	waiting map[uint64]chan sensed
}

// sensed is an answer to a message.
type sensed struct {
	ID uint64 `json:"id"`
	Answer
}

// answers is the topic on which they come.
const answers = "answers/bench"

// maxAnswer is the largest that is taken, in bytes.
const maxAnswer = 64 << 10

func newSensors(addr string, messages, sums []string) *sensors {
	return &sensors{addr: addr, messages: messages, sums: sums, waiting: map[uint64]chan sensed{}}
}

// connect subscribes to the answers.
func (s *sensors) connect(ctx context.Context) error {
	s.close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until)
	}
	in := bufio.NewReader(conn)
	for _, step := range []struct {
		packet []byte
		kind   byte
	}{{mqtt.ConnectPacket("bench"), mqtt.Connack}, {mqtt.SubscribePacket(1, answers), mqtt.Suback}} {
		if _, err = conn.Write(step.packet); err == nil {
			var p mqtt.Packet
			if p, err = mqtt.ReadPacket(in, maxAnswer); err == nil && p.Kind != step.kind {
				err = errors.New("the broker answers with another packet")
			}
		}
		if err != nil {
			conn.Close()
			return err
		}
	}
	_ = conn.SetDeadline(time.Time{})
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	go s.listen(in)
	return nil
}

// listen hands answers to those who wait for them, until the connection ends.
func (s *sensors) listen(in *bufio.Reader) {
	for {
		p, err := mqtt.ReadPacket(in, maxAnswer)
		if err != nil {
			return // who waits gives up in time
		}
		var a sensed
		if p.Kind != mqtt.Publish || json.Unmarshal(p.Payload, &a) != nil {
			continue
		}
		s.mu.Lock()
		if to := s.waiting[a.ID]; to != nil {
			delete(s.waiting, a.ID)
			to <- a
		}
		s.mu.Unlock()
	}
}

func (s *sensors) get(ctx context.Context) (Answer, error) {
	back := make(chan sensed, 1)
	s.mu.Lock()
	id := s.next
	s.next++
	n := int(id % uint64(len(s.sums)))
	err := errors.New("there is no connection")
	if s.conn != nil {
		s.waiting[id] = back
		if until, ok := ctx.Deadline(); ok {
			_ = s.conn.SetWriteDeadline(until)
		}
		_, err = s.conn.Write(mqtt.PublishPacket("sensors", fmt.Appendf(nil, `{"id":%d,"answer":%q,"values":%s}`, id, answers, s.messages[n])))
	}
	s.mu.Unlock()
	if err != nil {
		return Answer{}, err
	}
	select {
	case a := <-back:
		if a.Sum != s.sums[n] {
			return Answer{}, fmt.Errorf("the answer to message %d is another: its sum is %.20q, and not %s", n, a.Sum, s.sums[n])
		}
		return a.Answer, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.waiting, id)
		s.mu.Unlock()
		return Answer{}, ctx.Err()
	}
}

func (s *sensors) ready(ctx context.Context, alive func(context.Context) error) error {
	return until(ctx, alive, func(ctx context.Context) error {
		if err := s.connect(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second) // a message is lost before the subscriber is there
		defer cancel()
		_, err := s.get(ctx)
		return err
	})
}

func (s *sensors) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}
