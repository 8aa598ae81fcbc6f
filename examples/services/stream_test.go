//go:build !wasip1

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"skerry.dev/skerry/link/mqtt"
)

// The strongest vibration is the one that was put in.
func TestSensors(t *testing.T) {
	for n := range inputs {
		if _, strongest, err := analyse(samples(n)); err != nil || strongest != n+3 {
			t.Errorf("sensor %d: %d %v", n, strongest, err)
		}
	}
	if _, _, err := analyse([]int{1, 2}); err == nil {
		t.Error("two samples are enough")
	}
}

// Messages go through the broker to the subscriber, and its answers back to who asked and to nobody else.
func TestStream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stream(ln) }()
	defer func() { ln.Close(); <-ended }()
	type client struct {
		net.Conn
		*bufio.Reader
	}
	join := func(topic string) client {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		c := client{conn, bufio.NewReader(conn)}
		for _, step := range []struct {
			packet []byte
			kind   byte
		}{{mqtt.ConnectPacket("c"), mqtt.Connack}, {mqtt.SubscribePacket(3, topic), mqtt.Suback}} {
			if _, err := conn.Write(step.packet); err != nil {
				t.Fatal(err)
			}
			if p, err := mqtt.ReadPacket(c.Reader, maxMessage); err != nil || p.Kind != step.kind {
				t.Fatal(p, err)
			}
		}
		return c
	}
	one, two, subscriber := join("answers/1"), join("answers/2"), join(sensors)
	// What is published before the subscriber of the service is there is lost: ask until there is an answer.
	for id, got := uint64(0), false; !got; id++ {
		text, _ := json.Marshal(measured{id, "answers/2", samples(5)})
		if _, err := one.Conn.Write(mqtt.PublishPacket(sensors, text)); err != nil {
			t.Fatal(err)
		}
		if p, err := mqtt.ReadPacket(subscriber.Reader, maxMessage); err != nil || string(p.Payload) != string(text) {
			t.Fatalf("%s %v", p.Payload, err)
		}
		_ = two.Conn.SetReadDeadline(time.Now().Add(time.Second))
		p, err := mqtt.ReadPacket(two.Reader, maxMessage)
		if err != nil && id < 30 {
			continue
		}
		var a found
		if err != nil || json.Unmarshal(p.Payload, &a) != nil || a.ID > id || a.Total <= 0 {
			t.Fatalf("%s %v", p.Payload, err)
		}
		if sum, _, _ := analyse(samples(5)); a.Sum != fmt.Sprintf("%08x", sum) {
			t.Errorf("%+v", a)
		}
		got = true
	}
	_ = one.Conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if p, err := mqtt.ReadPacket(one.Reader, maxMessage); err == nil {
		t.Errorf("%+v is not for it", p)
	}
	// One that does not introduce itself is let go.
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(mqtt.SubscribePacket(1, sensors)); err != nil {
		t.Fatal(err)
	}
	if p, err := mqtt.ReadPacket(conn, maxMessage); err == nil {
		t.Errorf("%+v", p)
	}
}

// FuzzFind: whatever a message says, it is answered or refused.
func FuzzFind(f *testing.F) {
	text, _ := json.Marshal(measured{7, "answers/1", samples(0)})
	f.Add(text)
	f.Add([]byte(`{"id":1,"values":[1e99]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, out, err := find(data, time.Now()); err == nil && out.Sum == "" {
			t.Error("no answer, and no error")
		}
	})
}
