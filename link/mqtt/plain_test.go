package mqtt

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// What is written for a program of one's own is read as it was meant, and what it does not speak is refused.
func TestPlain(t *testing.T) {
	var all bytes.Buffer
	for _, p := range [][]byte{ConnectPacket("c"), ConnackPacket(), SubscribePacket(7, "a/b"), SubackPacket(7, 1), PublishPacket("a/b", []byte("hello")), PingrespPacket()} {
		all.Write(p)
	}
	for _, want := range []Packet{{Kind: Connect}, {Kind: Connack}, {Kind: Subscribe, ID: 7, Topics: []string{"a/b"}}, {Kind: Suback}, {Kind: Publish, Topic: "a/b", Payload: []byte("hello")}, {Kind: Pingresp}} {
		got, err := ReadPacket(&all, 100)
		if err != nil || got.Kind != want.Kind || got.ID != want.ID || len(got.Topics) != len(want.Topics) || got.Topic != want.Topic || string(got.Payload) != string(want.Payload) {
			t.Errorf("%+v %v, not %+v", got, err, want)
		}
	}
	if _, err := ReadPacket(&all, 100); err != io.EOF {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{"version 5": encode(kindConnect, 0, text("MQTT"), []byte{5, 2, 0, 30, 0}, text("c")), "refused": connack(false, v4NotAuthorised, 0), "topic": suback(kindSuback, false, 1, []byte{v4Failure}),
		"nothing granted": encode(kindSuback, 0, u16(1)), "quality 1": encode(kindPublish, 2, text("a"), u16(1), []byte("x")), "puback": puback(1)} {
		if _, err := ReadPacket(bytes.NewReader(bad), 100); !errors.Is(err, errMalformed) && !errors.Is(err, errVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadPacket(bytes.NewReader(PublishPacket("a", make([]byte, 200))), 100); !errors.Is(err, errTooLarge) {
		t.Error(err)
	}
}
