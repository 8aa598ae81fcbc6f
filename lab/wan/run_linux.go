package wan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Request replaces the shapes; without any it only asks for the counters.
type Request struct {
	Set    bool   `json:"set"`
	Shapes []Rule `json:"shapes,omitempty"`
}

// Rule is the shape of one pair, as it is sent.
type Rule struct {
	Pair
	Shape
}

// Answer follows each Request, when it has taken effect.
type Answer struct {
	Counters Counters `json:"counters"`
}

// order is a request on its way to the loop.
type order struct {
	Request
	done chan Counters
}

// tick is the longest time after which a new request is seen.
const tick = 50 * time.Millisecond

// Run binds to a queue of the calling thread's network namespace and serves requests on a unix socket until ctx ends. The
// thread is its own: it waits with the precision of the kernel's clock, not of the Go runtime's.
func Run(ctx context.Context, num uint16, socket string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	q, err := openQueue(num)
	if err != nil {
		return err
	}
	defer q.close()
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	orders := make(chan order) // unbuffered: the loop takes one at a tick
	served := make(chan struct{})
	go func() { defer close(served); serve(ctx, ln, orders) }()
	err = loop(ctx, q, orders)
	cancel()
	ln.Close()
	<-served
	return err
}

// loop gives verdicts. It never blocks for longer than a tick.
func loop(ctx context.Context, q *queue, orders <-chan order) error {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // the default of 50 us adds to every delay
	l := newLine(uint64(time.Now().UnixNano()))
	start := time.Now()
	fds := []unix.PollFd{{Fd: int32(q.fd), Events: unix.POLLIN}}
	var out []byte
	var due []verdict
	for ctx.Err() == nil {
		wait := tick
		if at, ok := l.next(); ok {
			wait = min(wait, max(0, at-time.Since(start)))
		}
		ts := unix.NsecToTimespec(int64(wait))
		if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for packets: %w", err)
		}
		out = out[:0]
		for range batchPackets {
			n, _, err := unix.Recvfrom(q.fd, q.buf, 0)
			if err != nil {
				break // nothing more is there
			}
			now := time.Since(start)
			// What cannot be parsed is skipped: the kernel reports errors of verdicts for packets that are gone.
			_ = parse(q.buf[:n], func(id uint32, pair Pair) {
				if v, done := l.arrive(now, id, pair); done {
					out = appendVerdict(out, q.num, v)
				}
			})
		}
		due = l.leave(time.Since(start), batchPackets, due[:0])
		for _, v := range due {
			out = appendVerdict(out, q.num, v)
		}
		if len(out) > 0 {
			if err := q.send(out); err != nil {
				return fmt.Errorf("give verdicts: %w", err)
			}
		}
		select {
		case o := <-orders:
			if o.Set {
				shapes := Shapes{}
				for _, r := range o.Shapes {
					shapes[r.Pair] = r.Shape
				}
				l.set(shapes)
			}
			o.done <- l.counters()
		default:
		}
	}
	return nil
}

// serve answers requests, one line of JSON each.
func serve(ctx context.Context, ln net.Listener, orders chan<- order) {
	var open sync.WaitGroup
	for {
		c, err := ln.Accept()
		if err != nil {
			open.Wait()
			return
		}
		open.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { c.Close() })
			defer stop()
			dec, enc := json.NewDecoder(c), json.NewEncoder(c)
			for {
				o := order{done: make(chan Counters, 1)}
				if dec.Decode(&o.Request) != nil {
					return
				}
				select {
				case orders <- o:
				case <-ctx.Done():
					return
				}
				if enc.Encode(Answer{<-o.done}) != nil {
					return
				}
			}
		})
	}
}

// Call sends a request to the Run that serves a socket.
func Call(ctx context.Context, socket string, q Request) (Answer, error) {
	var a Answer
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return a, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(q); err != nil {
		return a, err
	}
	return a, json.NewDecoder(c).Decode(&a)
}
