package mqtt

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestOneMachineCrowdsNobodyOut: a device on a slow line gets as far as its session while another machine connects again and again.
func TestOneMachineCrowdsNobodyOut(t *testing.T) {
	s := newSite(t)
	cert := s.member("w1")
	raw, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	for range 2 * maxPending {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	s.awaitReason("evicted", maxPending)
	c := &client{t: t, v: 4, conn: tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}})}
	raw.SetDeadline(time.Now().Add(time.Minute))
	c.write(encode(kindConnect, 0, text("MQTT"), []byte{4, 2, 0, 30}, text("any")))
	if p := c.read(); p.kind != kindConnack || p.body[1] != 0 {
		t.Fatalf("%+v", p)
	}
	c.subscribe("skerry/w1/down", 0)
	c.publish("skerry/w1/up", hello("w1"))
	if h := s.next("up"); h.name != "w1" {
		t.Errorf("%+v", h)
	}
}
