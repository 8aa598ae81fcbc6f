//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

const (
	// linkEvery is how often the round trips of links with a limit are measured.
	linkEvery = 10 * time.Second
	// linkTime is how long an endpoint is waited for; one that takes longer counts as so far away.
	linkTime = 3 * time.Second
	// linkEndpoints bounds the endpoints of a service that are tried.
	linkEndpoints = 8
)

// linkTimes holds the round trip to the nearest endpoint of each service that something here is linked to with a limit.
type linkTimes struct {
	mu sync.Mutex
	ms map[skerry.ServiceKey]float64
}

// of gives what belongs to an assignment, for its report.
func (l *linkTimes) of(a *spec.Assignment) map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out map[string]float64
	for _, k := range limitedLinks(a) {
		if ms, ok := l.ms[k]; ok {
			if out == nil {
				out = map[string]float64{}
			}
			out[k.Service] = ms
		}
	}
	return out
}

func limitedLinks(a *spec.Assignment) (out []skerry.ServiceKey) {
	for _, l := range a.Spec.Links {
		if l.MaxLatency != nil {
			out = append(out, skerry.ServiceKey{App: a.Service.App, Service: l.Service})
		}
	}
	return out
}

// watchLinks measures links until ctx ends.
func (s *Server) watchLinks(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var keys []skerry.ServiceKey
		err := s.Role.View(ctx, func(c loop.Core) {
			c.(*core.Core).Running(func(a *spec.Assignment, name string, _ json.RawMessage) {
				if name == spec.MainContainer {
					keys = append(keys, limitedLinks(a)...)
				}
			})
		})
		if err != nil {
			continue
		}
		now := map[skerry.ServiceKey]float64{}
		for _, k := range keys {
			if _, done := now[k]; done {
				continue
			}
			if ms := nearest(ctx, s.endpoints.of(k)); ms > 0 {
				now[k] = ms
			}
		}
		s.meter.links.mu.Lock()
		changed := len(now) != len(s.meter.links.ms)
		for k, ms := range now {
			changed = changed || math.Abs(ms-s.meter.links.ms[k]) > 1+ms/4
		}
		s.meter.links.ms = now
		s.meter.links.mu.Unlock()
		if changed {
			s.meter.measureNow()
		}
	}
}

// nearest gives the time in which the nearest endpoint accepts or refuses a connection, in milliseconds. It gives 0 when
// there is none that can be asked, and linkTime when nobody answers in time.
func nearest(ctx context.Context, list []wire.Endpoint) float64 {
	list = slices.DeleteFunc(list, func(e wire.Endpoint) bool { return e.Protocol == "udp" })
	list = list[:min(len(list), linkEndpoints)]
	if len(list) == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	took := make([]float64, len(list))
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() {
			took[i] = float64(linkTime) / 1e6
			for range 2 { // the first may have to find the way
				begin := time.Now()
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.Address)
				if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
					return
				}
				took[i] = min(took[i], float64(time.Since(begin))/1e6)
				if err == nil {
					c.Close()
				}
			}
		})
	}
	wg.Wait()
	return slices.Min(took)
}
