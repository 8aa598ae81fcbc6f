package mqtt

import (
	"fmt"
	"io"
)

// Kinds of packets that programs see which speak MQTT among themselves, see ReadPacket.
const (
	Connect    = kindConnect
	Connack    = kindConnack
	Publish    = kindPublish
	Subscribe  = kindSubscribe
	Suback     = kindSuback
	Pingreq    = kindPingreq
	Pingresp   = kindPingresp
	Disconnect = kindDisconnect
)

// Packet is one of MQTT 3.1.1. ID and Topics are those of a SUBSCRIBE, Topic and Payload those of a PUBLISH.
type Packet struct {
	Kind    byte
	ID      int
	Topics  []string
	Topic   string
	Payload []byte
}

// ReadPacket takes a packet with a body of at most limit bytes, for programs that speak MQTT 3.1.1 with quality of
// service 0 among themselves: they need neither Listener nor broker. A CONNACK or SUBACK that refuses is an error, as
// is what is malformed, of another version or another quality.
func ReadPacket(in io.Reader, limit int) (Packet, error) {
	pkt, err := readPacket(in, func() int { return limit })
	if err != nil {
		return Packet{}, err
	}
	out := Packet{Kind: pkt.kind}
	switch pkt.kind {
	case kindConnect:
		var c connect
		if c, err = parseConnect(pkt); err == nil && c.v5 {
			err = errVersion
		}
	case kindPublish:
		var m publish
		if m, err = parsePublish(pkt, false); err == nil && m.qos > 0 {
			err = malformed("PUBLISH with another quality of service than 0")
		}
		out.Topic, out.Payload = m.topic, m.payload
	case kindSubscribe:
		out.ID, out.Topics, err = parseSubscribe(pkt, false)
	case kindConnack:
		if len(pkt.body) != 2 || pkt.body[1] != 0 {
			err = malformed("CONNACK, or the connection is refused")
		}
	case kindSuback:
		if len(pkt.body) < 3 {
			return out, malformed("SUBACK")
		}
		for _, code := range pkt.body[2:] {
			if code > 2 {
				err = malformed("SUBACK, or the topic is refused")
			}
		}
	case kindPingreq, kindPingresp, kindDisconnect:
	default:
		err = fmt.Errorf("%w: packet of kind %d", errMalformed, pkt.kind)
	}
	return out, err
}

// ConnectPacket introduces a client, without a keep-alive.
func ConnectPacket(client string) []byte {
	return encode(kindConnect, 0, text("MQTT"), []byte{4, 2, 0, 0}, text(client))
}

// ConnackPacket lets a client in.
func ConnackPacket() []byte { return connack(false, codeSuccess, 0) }

// SubscribePacket asks for the messages of a topic.
func SubscribePacket(id int, topic string) []byte {
	return encode(kindSubscribe, 2, u16(id), text(topic), []byte{0})
}

// SubackPacket grants n topics.
func SubackPacket(id, n int) []byte { return suback(kindSuback, false, id, make([]byte, n)) }

// PublishPacket is a message.
func PublishPacket(topic string, payload []byte) []byte { return message(false, topic, payload) }

// PingrespPacket answers PINGREQ.
func PingrespPacket() []byte { return encode(kindPingresp, 0) }
