package mqtt

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func limitOf(n int) func() int { return func() int { return n } }

// seeds are packets as clients send them.
func seeds() map[string][]byte {
	connect4 := encode(kindConnect, 0, text("MQTT"), []byte{4, 2, 0, 30}, text("c1"))
	connect5 := encode(kindConnect, 0, text("MQTT"), []byte{5, 2, 0, 30}, []byte{8, 0x27, 0, 1, 0, 0, 0x21, 0, 9}, text("c1"))
	will5 := encode(kindConnect, 0, text("MQTT"), []byte{5, 0x06, 0, 30, 0}, text("c1"), []byte{0}, text("t"), text("bye"))
	return map[string][]byte{
		"connect 3.1.1": connect4, "connect 5": connect5, "connect with a will": will5,
		"connect with user": encode(kindConnect, 0, text("MQTT"), []byte{4, 0xC2, 0, 30}, text("c1"), text("user"), text("password")),
		"publish":           encode(kindPublish, 0, text("skerry/w1/up"), []byte(`{"type":"pong"}`)),
		"publish 5, qos 1":  message(true, "skerry/w1/up", []byte("x")),
		"subscribe":         encode(kindSubscribe, 2, u16(1), text("skerry/w1/down"), []byte{1}),
		"subscribe 5":       encode(kindSubscribe, 2, u16(1), []byte{0}, text("skerry/w1/down"), []byte{1}),
		"unsubscribe":       encode(kindUnsubscribe, 2, u16(1), text("skerry/w1/down")),
		"cut off subscribe": encode(kindSubscribe, 2, u16(1), []byte{0}, text("a")), // a library that others use panics at this
		"ping":              encode(kindPingreq, 0),
		"disconnect":        encode(kindDisconnect, 0),
		"long":              {0x30, 0xff, 0xff, 0xff, 0x7f},
		"endless length":    {0x30, 0xff, 0xff, 0xff, 0xff, 1},
	}
}

func TestParse(t *testing.T) {
	all := seeds()
	parse := func(name string) packet {
		t.Helper()
		p, err := readPacket(bytes.NewReader(all[name]), limitOf(1<<20))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return p
	}
	for name, want := range map[string]connect{
		"connect 3.1.1":       {client: "c1", keepAlive: 30},
		"connect with user":   {client: "c1", keepAlive: 30},
		"connect 5":           {v5: true, client: "c1", keepAlive: 30, maxPacket: 65536},
		"connect with a will": {v5: true, client: "c1", keepAlive: 30, will: true},
	} {
		if got, err := parseConnect(parse(name)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := parseConnect(packet{kind: kindConnect, body: append(text("MQIsdp"), 3, 2, 0, 0)}); !errors.Is(err, errVersion) {
		t.Errorf("MQTT 3.1: %v", err)
	}
	if p, err := parsePublish(parse("publish"), false); err != nil || p.topic != "skerry/w1/up" || string(p.payload) != `{"type":"pong"}` {
		t.Errorf("%+v, %v", p, err)
	}
	for flags, ok := range map[byte]bool{0: true, 2: true, 4: false, 6: false, 1: false} {
		body := append(text("a"), 0, 7, 'x')
		if p, err := parsePublish(packet{kind: kindPublish, flags: flags, body: body}, false); (err == nil) != ok || ok && flags == 2 && (p.id != 7 || string(p.payload) != "x") {
			t.Errorf("publish with flags %d: %+v, %v", flags, p, err)
		}
	}
	if id, f, err := parseSubscribe(parse("subscribe 5"), true); err != nil || id != 1 || len(f) != 1 || f[0] != "skerry/w1/down" {
		t.Errorf("%d %v %v", id, f, err)
	}
	if _, _, err := parseSubscribe(parse("cut off subscribe"), true); !errors.Is(err, errMalformed) {
		t.Errorf("a subscription that ends in the middle: %v", err)
	}
	if _, err := readPacket(bytes.NewReader(all["long"]), limitOf(1<<20)); !errors.Is(err, errTooLarge) {
		t.Errorf("a packet of 256 MiB: %v", err)
	}
	if _, err := readPacket(bytes.NewReader(all["endless length"]), limitOf(1<<20)); !errors.Is(err, errMalformed) {
		t.Errorf("an endless length: %v", err)
	}
	for name, b := range all {
		for n := 1; n < len(b); n++ {
			if _, err := readPacket(bytes.NewReader(b[:n]), limitOf(1<<20)); err == nil {
				t.Errorf("%s: %d of %d bytes are enough", name, n, len(b))
			}
		}
	}
}

// FuzzPacket gives the parsers what a client may send: they never panic, and keep no more than what arrived.
func FuzzPacket(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, v5 bool) {
		r := bytes.NewReader(data)
		for {
			p, err := readPacket(r, limitOf(1<<16))
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errMalformed) && !errors.Is(err, errTooLarge) {
					t.Fatal(err)
				}
				return
			}
			switch p.kind {
			case kindConnect:
				if c, err := parseConnect(p); err == nil && len(c.client) > len(p.body) {
					t.Fatalf("%+v", c)
				}
			case kindPublish:
				m, err := parsePublish(p, v5)
				if err != nil || m.qos > 0 {
					break
				}
				back, err := readPacket(bytes.NewReader(message(v5, m.topic, m.payload)), limitOf(1<<20))
				if err != nil {
					t.Fatal(err)
				}
				if again, err := parsePublish(back, v5); err != nil || again.topic != m.topic || !bytes.Equal(again.payload, m.payload) {
					t.Fatalf("%+v, then %+v, %v", m, again, err)
				}
			case kindSubscribe, kindUnsubscribe:
				if _, list, err := parseSubscribe(p, v5); err == nil && (len(list) == 0 || len(list) > maxFilters) {
					t.Fatalf("%d topics", len(list))
				}
			}
		}
	})
}
