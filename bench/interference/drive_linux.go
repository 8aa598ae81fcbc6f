package interference

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// Target is an instance of a service of examples/services that runs somewhere.
type Target struct {
	Addr string
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: as usual
}

// Drive is a load on instances that share it.
type Drive struct {
	Rate       float64       // requests per second, of all instances together
	Warm, Load time.Duration // Warm is not counted
	Timeout    time.Duration // of a request, from when it was due
	Sums       []string      // of right answers, see Sums
}

// Sums gives the checksums of the answers of a service, by a program that is examples/services.
func Sums(ctx context.Context, program, service string) ([]string, error) {
	return lines(ctx, program, "sums", service)
}

// lines gives what a command of the program prints of a service.
func lines(ctx context.Context, program, command, service string) ([]string, error) {
	out, err := exec.CommandContext(ctx, program, command, service).Output()
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "%s does not tell the %s of %s: %w", program, command, service, err)
	}
	text := strings.Fields(string(out)) // none has a space
	if len(text) == 0 {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "%s tells no %s of %s", program, command, service)
	}
	return text, nil
}

// Run waits until every instance answers, and sends requests to one after the other as they are due, whether or not
// earlier ones came back. The process goes before all others meanwhile, so it is not to start any.
func (d Drive) Run(ctx context.Context, to []Target) (o Outcome, err error) {
	if len(to) == 0 {
		return o, skerry.Errorf(skerry.CodeInvalid, "a load needs instances")
	}
	var clients []*client
	for _, t := range to {
		c := dialing(t.Addr, d.Sums, t.Dial)
		defer c.close()
		clients = append(clients, c)
		if err := c.ready(ctx, func(context.Context) error { return nil }); err != nil {
			return o, fmt.Errorf("an instance that is ready does not answer: %w", err)
		}
	}
	cpus, err := processors()
	if err != nil {
		return o, err
	}
	was, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid()) // the kernel gives 20 less niceness
	if err != nil {
		return o, err
	}
	if err := stay(cpus, eager); err != nil {
		return o, err
	}
	defer func() {
		if e := stay(cpus, 20-was); err == nil {
			err = e
		}
	}()
	var next atomic.Uint64
	send := func(ctx context.Context) (Answer, error) {
		return clients[int(next.Add(1)-1)%len(clients)].get(ctx)
	}
	g := generator{rate: d.Rate, time: d.Warm, timeout: d.Timeout}
	if d.Warm > 0 {
		if _, err := g.run(ctx, send); err != nil {
			return o, err
		}
	}
	g.time = d.Load
	shots, err := g.run(ctx, send)
	if err != nil {
		return o, err
	}
	return g.fold(shots), nil
}
