//go:build linux

package bpf

import (
	"net"

	"github.com/cilium/ebpf"

	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/overlay/internal/planetest"
)

// skb is what a program may be told of a packet in a test run: struct __sk_buff, as far as it may be set.
type skb struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// try runs a program on a frame as if it came in at a device, and gives the verdict.
func (h *host) try(program, device string, frame []byte) uint32 {
	h.T.Helper()
	verdict, err := h.tryAny(program, device, frame)
	planetest.Must(h.T, err)
	return verdict
}

// tryAny does the same with what the kernel may refuse to make a packet of, and fails for a verdict that there is not.
func (h *host) tryAny(program, device string, frame []byte) (verdict uint32, err error) {
	h.T.Helper()
	err = h.on(func() error {
		if h.indexes[device] == 0 {
			dev, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			h.indexes[device] = uint32(dev.Index)
		}
		var err error
		verdict, err = h.dev.coll.Programs[program].Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: skb{Ifindex: h.indexes[device]}})
		if err == nil && verdict != verdictDrop && verdict != verdictNext && verdict != verdictRedirect {
			h.T.Errorf("%s gives verdict %d on %x", program, verdict, frame)
		}
		return err
	})
	return verdict, err
}

// on runs something on a thread that stays in the host's namespace until the test ends.
func (h *host) on(f func() error) error {
	if h.thread == nil {
		h.thread, h.indexes = make(chan func()), map[string]uint32{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = kernel.In(h.NS, func() error {
				for f := range h.thread {
					f()
				}
				return nil
			})
		}()
		h.T.Cleanup(func() { close(h.thread); <-done })
	}
	got := make(chan error, 1)
	h.thread <- func() { got <- f() }
	return <-got
}

const (
	verdictDrop     = 2
	verdictRedirect = 7
	verdictNext     = 0xffffffff
)
