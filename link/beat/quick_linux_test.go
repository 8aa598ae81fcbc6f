package beat

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestQuickly(t *testing.T) {
	parent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	child, err := net.DialUDP("udp", nil, parent.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	raw, err := child.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var in [Size + 1]byte
	if n, err := quickly(raw, []byte("beat"), in[:], time.Millisecond); n != 0 || err != nil {
		t.Errorf("without an answer: %d bytes, %v", n, err)
	}
	var got [Size + 1]byte
	n, from, err := parent.ReadFrom(got[:])
	if err != nil || string(got[:n]) != "beat" {
		t.Fatalf("the parent got %q, %v", got[:n], err)
	}
	if _, err := parent.WriteTo([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	// On the loopback device it has come already.
	if n, err := quickly(raw, []byte("beat"), in[:], time.Minute); err != nil || string(in[:n]) != "answer" {
		t.Errorf("the answer: %q, %v", in[:n], err)
	}
	parent.Close()
	if _, err := quickly(raw, []byte("beat"), in[:], time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("to a closed port: %v", err)
	}
	child.Close()
	if _, err := quickly(raw, []byte("beat"), in[:], time.Minute); err == nil {
		t.Error("by a closed connection: no error")
	}
}
