//go:build linux

// Clock sets the clock of a guest of the tests by that of the machine that boots it, asked by SNTP (RFC 5905, section 14), and goes on doing so: what
// passes between two machines can be timed only as far as their clocks agree. It prints by how much it was wrong each time, and how sure that is.
//
//	clock once SERVER:PORT     sets it and ends
//	clock keep SERVER:PORT     looks again every ten seconds
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 || os.Args[1] != "once" && os.Args[1] != "keep" {
		log.Fatal("usage: clock once|keep SERVER:PORT")
	}
	for {
		err := set(os.Args[2])
		if err != nil {
			log.Print("clock: ", err)
		}
		if os.Args[1] == "once" && err == nil {
			return
		}
		if os.Args[1] == "keep" {
			time.Sleep(10 * time.Second)
		}
	}
}

// set asks some times, takes the answer that came the fastest, and sets the clock if it is wrong by more than that answer leaves open.
func set(server string) error {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return err
	}
	defer conn.Close()
	var offset, delay time.Duration
	best, last := false, errors.New("nobody answered")
	for range 8 {
		o, d, err := ask(conn)
		if err != nil {
			last = err
			continue
		}
		if !best || d < delay {
			offset, delay, best = o, d, true
		}
		time.Sleep(20 * time.Millisecond)
	}
	if !best {
		return last
	}
	open := delay / 2 // the way there and the way back may differ by all of it
	// Lines of a console begin anywhere, as others write to it, too.
	fmt.Printf("\nclock off %d open %d\n", offset.Nanoseconds(), open.Nanoseconds())
	if offset.Abs() <= open {
		return nil
	}
	ts := unix.NsecToTimespec(time.Now().Add(offset).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// ask gives how far the server's clock is ahead, and how long question and answer took on their ways.
func ask(conn net.Conn) (offset, delay time.Duration, err error) {
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return 0, 0, err
	}
	var q [48]byte
	q[0] = 4<<3 | 3 // version 4, a client
	sent := time.Now()
	binary.BigEndian.PutUint64(q[40:], uint64(sent.UnixNano())) // what is asked with comes back, and means nothing to the server
	if _, err := conn.Write(q[:]); err != nil {
		return 0, 0, err
	}
	for {
		var a [64]byte
		n, err := conn.Read(a[:])
		if err != nil {
			return 0, 0, err
		}
		back := time.Now()
		if n != 48 || a[0]&7 != 4 || [8]byte(a[24:]) != [8]byte(q[40:]) {
			continue // an answer to an earlier question
		}
		came, left := ntp(a[32:]), ntp(a[40:])
		// Without what this machine's clock counts apart from its time of day, which may be set meanwhile.
		return (came.Sub(sent.Round(0)) + left.Sub(back.Round(0))) / 2, back.Sub(sent) - left.Sub(came), nil
	}
}

// ntp reads a time stamp (RFC 5905, section 6).
func ntp(b []byte) time.Time {
	v := binary.BigEndian.Uint64(b)
	return time.Unix(int64(v>>32)-2208988800, int64(v&0xffffffff*1e9>>32))
}
