//go:build !wasip1

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"skerry.dev/skerry/link/mqtt"
)

// maxMessage is the largest packet that the broker takes, in bytes.
const maxMessage = 16 << 10

// sensors is the topic of what sensors measure.
const sensors = "sensors"

// broker passes messages on: MQTT 3.1.1, quality of service 0, topics without wildcards. It keeps nothing.
type broker struct {
	mu    sync.Mutex
	peers map[string]map[*peer]bool // by topic
}

// peer is a client. What it does not take in time is lost, as the quality of service has it.
type peer struct {
	conn net.Conn
	out  chan []byte
}

func (p *peer) send(b []byte) {
	select {
	case p.out <- b:
	default:
	}
}

func (b *broker) serve(ln net.Listener) error {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			p := &peer{conn, make(chan []byte, 1024)}
			_ = b.talk(p) // the client sees that it ends
			b.mu.Lock()
			for _, list := range b.peers {
				delete(list, p)
			}
			close(p.out)
			b.mu.Unlock()
			conn.Close()
		}()
	}
}

func (b *broker) talk(p *peer) error {
	_ = p.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(p.conn)
	if first, err := mqtt.ReadPacket(r, maxMessage); err != nil || first.Kind != mqtt.Connect {
		return errors.Join(errors.New("no CONNECT"), err)
	}
	_ = p.conn.SetReadDeadline(time.Time{})
	go func() {
		for m := range p.out {
			if _, err := p.conn.Write(m); err != nil {
				p.conn.Close() // talk ends
			}
		}
	}()
	p.send(mqtt.ConnackPacket())
	for {
		in, err := mqtt.ReadPacket(r, maxMessage)
		if err != nil {
			return err
		}
		switch in.Kind {
		case mqtt.Publish:
			m := mqtt.PublishPacket(in.Topic, in.Payload)
			b.mu.Lock()
			for to := range b.peers[in.Topic] {
				to.send(m)
			}
			b.mu.Unlock()
		case mqtt.Subscribe:
			b.mu.Lock()
			for _, t := range in.Topics {
				if b.peers[t] == nil {
					b.peers[t] = map[*peer]bool{}
				}
				b.peers[t][p] = true
			}
			b.mu.Unlock()
			p.send(mqtt.SubackPacket(in.ID, len(in.Topics)))
		case mqtt.Pingreq:
			p.send(mqtt.PingrespPacket())
		default:
			return nil // DISCONNECT, or what has no place here
		}
	}
}

// measured is a message of a sensor; the answer is published on Answer with the same ID.
type measured struct {
	ID     uint64 `json:"id"`
	Answer string `json:"answer"`
	Values []int  `json:"values"`
}

// found is the answer to it.
type found struct {
	ID uint64 `json:"id"`
	answer
}

// find answers a message; began is when its turn came.
func find(payload []byte, began time.Time) (to string, out found, err error) {
	var m measured
	if err := json.Unmarshal(payload, &m); err != nil {
		return "", out, err
	}
	load := time.Since(began)
	k := kernel(func(_ int, _ string, loaded func()) (uint32, error) {
		loaded()
		sum, _, err := analyse(m.Values)
		return sum, err
	})
	a, err := k.answer(0, "")
	a.Load += load.Seconds()
	a.Total += load.Seconds()
	return m.Answer, found{m.ID, a}, err
}

// stream runs a broker on a listener, and its subscriber, which connects to it as others do.
func stream(ln net.Listener) error {
	b := &broker{peers: map[string]map[*peer]bool{}}
	ended := make(chan error, 2)
	go func() { ended <- b.serve(ln) }()
	go func() { ended <- subscribe(ln.Addr().String()) }()
	return <-ended
}

// subscribe takes what sensors measure from a broker and publishes what it finds, as many at once as other services have requests in work.
func subscribe(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, step := range []struct {
		packet []byte
		kind   byte
	}{{mqtt.ConnectPacket("analysis"), mqtt.Connack}, {mqtt.SubscribePacket(1, sensors), mqtt.Suback}} {
		if _, err := conn.Write(step.packet); err != nil {
			return err
		}
		if p, err := mqtt.ReadPacket(r, maxMessage); err != nil || p.Kind != step.kind {
			return errors.Join(errors.New("the broker does not take the subscriber"), err)
		}
	}
	var write sync.Mutex
	turns := make(chan struct{}, workers*threads)
	for {
		p, err := mqtt.ReadPacket(r, maxMessage)
		if err != nil {
			return err
		}
		if p.Kind != mqtt.Publish {
			return io.ErrUnexpectedEOF
		}
		turns <- struct{}{}
		go func() {
			defer func() { <-turns }()
			to, out, err := find(p.Payload, time.Now())
			if err != nil || to == "" {
				return // nobody gets an answer that is none
			}
			text, err := json.Marshal(out)
			if err != nil {
				return
			}
			write.Lock()
			defer write.Unlock()
			_, _ = conn.Write(mqtt.PublishPacket(to, text)) // reading fails, too
		}()
	}
}
