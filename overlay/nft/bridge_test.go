//go:build linux

package nft

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// bridge stands for the datapaths of both hosts: it carries frames between their taps, and puts the number of the sender
// in the place of the receiver's, until the test ends. It can be told to change them.
func (w *world) bridge(change ...func(frame []byte)) {
	w.t.Helper()
	taps := [2]*os.File{}
	for i, h := range w.hosts {
		f, err := kernel.OpenTap(h.ns, h.opts.tunnelTap(), unix.IFF_VNET_HDR, true)
		must(w.t, err)
		c, err := f.SyscallConn()
		must(w.t, err)
		const tunF = 1 | 2 | 4 | 8 // checksums, TSO for IPv4 and IPv6, ECN
		must(w.t, errors.Join(c.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, tunF) }), err))
		taps[i] = f
	}
	w.taps = taps
	done := make(chan struct{}, 2)
	w.t.Cleanup(func() {
		for _, f := range taps {
			f.Close()
		}
		<-done
		<-done
	})
	for i := range taps {
		go func() {
			defer func() { done <- struct{}{} }()
			buf := make([]byte, 1<<17)
			for {
				n, err := taps[i].Read(buf)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil || n < 10+etherLen {
					continue
				}
				frame := buf[10:n]
				if frame[0] == 0x33 && frame[1] == 0x33 {
					continue // the kernel itself speaks of IPv6 groups
				}
				if frame[0] != 2 || frame[1] != byte(overlay.FrameData) || int(binary.BigEndian.Uint32(frame[2:])) != w.hosts[1-i].n {
					w.t.Errorf("a frame for nobody: %x", frame[:etherLen])
					continue
				}
				binary.BigEndian.PutUint32(frame[2:], uint32(w.hosts[i].n))
				for _, f := range change {
					f(frame)
				}
				_, _ = taps[1-i].Write(buf[:n])
			}
		}()
	}
}
