//go:build linux

// Command talk is what instances run in the guest to see whether they reach each other, and what looks at the wire between their
// workers.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// marker is in all that instances send, so that it can be looked for on the wire.
const marker = "a-word-that-nobody-may-read-on-the-way-"

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("say what to do: serve, stream, udp, bulk or wire"))
	}
	var err error
	switch a := os.Args[2:]; os.Args[1] {
	case "serve": // PORT: echoes, and at the next port swallows
		err = serve(a[0])
	case "stream": // ADDRESS: one connection, for good
		err = stream(a[0])
	case "udp": // ADDRESS SIZE COUNT
		err = datagrams(a[0], number(a[1]), number(a[2]))
	case "bulk": // ADDRESS SECONDS
		err = bulk(a[0], number(a[1]))
	case "wire": // DEVICE FILE PORT-OF-WIREGUARD PORT-OF-DATAPATH WORKER...
		err = wire(a[0], a[1], number(a[2]), number(a[3]), a[4:])
	default:
		err = fmt.Errorf("what is %s?", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fail(err)
	}
	return n
}

// fill gives a message of a size.
func fill(size, seed int) []byte {
	b := bytes.Repeat([]byte(marker), size/len(marker)+1)[:size]
	if size >= 8 {
		binary.BigEndian.PutUint64(b, uint64(seed))
	}
	return b
}

func serve(port string) error {
	p := number(port)
	echo, err := net.Listen("tcp", fmt.Sprint(":", p))
	if err != nil {
		return err
	}
	sink, err := net.Listen("tcp", fmt.Sprint(":", p+1))
	if err != nil {
		return err
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{Port: p})
	if err != nil {
		return err
	}
	each := func(l net.Listener, to func(net.Conn) io.Writer) {
		for {
			c, err := l.Accept()
			if err != nil {
				fail(err)
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(to(c), c)
			}()
		}
	}
	go each(echo, func(c net.Conn) io.Writer { return c })
	go each(sink, func(net.Conn) io.Writer { return io.Discard })
	b := make([]byte, 1<<16)
	for {
		n, from, err := u.ReadFromUDPAddrPort(b)
		if err != nil {
			return err
		}
		if _, err := u.WriteToUDPAddrPort(b[:n], from); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// stream sends small and large messages by one connection, and wants each back. It ends when the connection does.
func stream(to string) error {
	var c net.Conn
	var err error
	for range 600 { // the other end may start later
		if c, err = net.DialTimeout("tcp", to, time.Second); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	fmt.Println("connected")
	for n := 1; ; n++ {
		size := 8 + n%1400
		if n%20 == 0 {
			size = 200_000
		}
		msg := fill(size, n)
		sent := make(chan error, 1)
		go func() { _, err := c.Write(msg); sent <- err }()
		back := make([]byte, size)
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.ReadFull(c, back); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		if err := <-sent; err != nil {
			return err
		}
		if !bytes.Equal(msg, back) {
			return fmt.Errorf("message %d came back as another", n)
		}
		if n%5 == 0 {
			fmt.Println("message", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// datagrams wants each datagram back, and asks again for one that is lost: the network may lose some.
func datagrams(to string, size, count int) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<16)
	for n := range count {
		msg := fill(size, n)
		for try := 0; ; try++ {
			if try == 20 {
				return fmt.Errorf("datagram %d of %d bytes does not come back", n, size)
			}
			if _, err := c.Write(msg); err != nil {
				return err
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if k, err := c.Read(b); err == nil && bytes.Equal(b[:k], msg) {
				break
			}
		}
	}
	fmt.Println("all came back")
	return nil
}

// bulk sends as much as it can, and prints how much that is in Mbit/s.
func bulk(to string, seconds int) error {
	c, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	msg := fill(1<<16, 0)
	began, sent := time.Now(), 0
	for time.Since(began) < time.Duration(seconds)*time.Second {
		n, err := c.Write(msg)
		if err != nil {
			return err
		}
		sent += n
	}
	fmt.Printf("%.1f\n", float64(sent)*8/1e6/time.Since(began).Seconds())
	return nil
}

// seen is what was on the wire between workers.
type seen struct {
	WireGuard, Datapath, Control int
	Other                        map[string]int
	Readable                     int // packets with the marker
}

// wire looks at a worker's cable, and writes down what it saw every 200 ms.
func wire(device, file string, wireguard, datapath int, workers []string) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all&0xffff)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: dev.Index})
	}
	if err != nil {
		return err
	}
	tv := unix.NsecToTimeval(int64(200 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	s, b := seen{Other: map[string]int{}}, make([]byte, 1<<17)
	told := time.Time{}
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err == nil {
			s.look(b[:n], wireguard, datapath, workers)
		}
		if time.Since(told) > 200*time.Millisecond {
			told = time.Now()
			data, err := json.Marshal(s)
			if err == nil {
				err = os.WriteFile(file+".new", data, 0o644)
			}
			if err == nil {
				err = os.Rename(file+".new", file)
			}
			if err != nil {
				return err
			}
		}
	}
}

func (s *seen) look(p []byte, wireguard, datapath int, workers []string) {
	if bytes.Contains(p, []byte(marker)) {
		s.Readable++
	}
	if len(p) < 34 || binary.BigEndian.Uint16(p[12:]) != 0x0800 {
		if len(p) >= 14 && binary.BigEndian.Uint16(p[12:]) == 0x0806 {
			s.Control++ // ARP
			return
		}
		s.other("%.40x", p)
		return
	}
	src, dst := netip.AddrFrom4([4]byte(p[26:])).String(), netip.AddrFrom4([4]byte(p[30:])).String()
	between := false
	for _, a := range workers {
		for _, o := range workers {
			between = between || a != o && src == a && dst == o
		}
	}
	head := 14 + int(p[14]&15)*4
	switch {
	case !between:
		s.Control++ // with the cluster
	case p[23] != 17 || len(p) < head+12:
		s.other("protocol %d", p[23])
	default:
		from, to, kind := int(binary.BigEndian.Uint16(p[head:])), int(binary.BigEndian.Uint16(p[head+2:])), p[head+8]
		switch {
		case from == wireguard && to == wireguard && kind >= 1 && kind <= 4:
			s.WireGuard++
		case from == datapath && to == datapath:
			s.Datapath++
		default:
			s.other("UDP %d to %d", from, to)
		}
	}
}

func (s *seen) other(format string, a ...any) {
	if len(s.Other) < 20 {
		s.Other[fmt.Sprintf(format, a...)]++
	}
}
