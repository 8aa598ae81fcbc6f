//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

// pairOf is what a user has of a role of which several processes take turns.
type pairOf struct {
	t       *testing.T
	servers []string
	data    string // where the first admin's password is
	mu      sync.Mutex
	clients map[int]*api.Client
}

// do has whoever leads carry something out; an error is that of the last.
func (p *pairOf) do(ctx context.Context, f func(c *api.Client) error) (err error) {
	for n := range p.servers {
		p.mu.Lock()
		c := p.clients[n]
		p.mu.Unlock()
		if c == nil {
			if c, err = p.login(ctx, n); err != nil {
				continue
			}
		}
		if err = f(c); err == nil {
			return nil
		}
	}
	return err
}

func (p *pairOf) login(ctx context.Context, n int) (*api.Client, error) {
	password, err := os.ReadFile(p.data)
	if err != nil {
		return nil, err
	}
	pin, err := api.FetchPin(ctx, p.servers[n])
	if err != nil {
		return nil, err
	}
	c, err := api.NewClient(api.ClientOptions{Server: p.servers[n], Pin: pin})
	if err != nil {
		return nil, err
	}
	if _, err := c.Login(ctx, "admin", strings.TrimSpace(string(password))); err != nil {
		c.Close()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[int]*api.Client{}
	}
	p.clients[n] = c
	p.t.Cleanup(c.Close)
	return c, nil
}

// leader tells which of them answers, or -1.
func (p *pairOf) leader() int {
	for n, s := range p.servers {
		if _, err := api.FetchPin(p.t.Context(), s); err == nil {
			return n
		}
	}
	return -1
}

// ready counts the ready instances of an application; -1 when nobody who leads says.
func (p *pairOf) ready(ctx context.Context, app string) (n int) {
	if p.do(ctx, func(c *api.Client) error {
		if n = readyOf(ctx, c, app); n < 0 {
			return errors.New("no answer")
		}
		return nil
	}) != nil {
		return -1
	}
	return n
}

// tellIfFailed shows, when the test has failed, what each of the processes then knows of the instances of an application.
func (p *pairOf) tellIfFailed(app string) {
	if !p.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	for n, server := range p.servers {
		c, err := p.login(ctx, n)
		if err != nil {
			p.t.Logf("%s: %v", server, err)
			continue
		}
		list, err := c.Instances(ctx, api.InstanceFilter{App: app})
		p.t.Logf("%s knows %d instances of %s: %v", server, len(list), app, err)
		for _, i := range list {
			p.t.Logf("%s: %s %s %q why %v, stopping %t, at %s %s, fence %+v, conditions %+v, timeline %+v", i.ID, i.State, i.Phase, i.Reason, i.Why, i.Stopping, i.Cluster, i.Worker, i.Fence, i.Conditions, i.Timeline)
		}
	}
}

// register writes an application down at whoever leads; each of the servers has so long to answer.
func (p *pairOf) register(ctx context.Context, manifest []byte, patience time.Duration) (gen skerry.Generation, err error) {
	err = p.do(ctx, func(c *api.Client) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		res, err := c.Apply(ctx, manifest, api.ApplyOptions{Register: true})
		gen = res.Gen
		return err
	})
	return gen, err
}

// users write applications down again and again while roles are killed. What was acknowledged must be there in the end.
type users struct {
	stop func()
	done sync.WaitGroup

	mu    sync.Mutex
	acked map[string]skerry.Generation
}

// write has n users each take turns at so many names.
func write(t *testing.T, n, names int, register func(ctx context.Context, name string, round int) (skerry.Generation, error)) *users {
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{stop: cancel, acked: map[string]skerry.Generation{}}
	for w := range n {
		u.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i%names)
				gen, err := register(ctx, name, i)
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				u.mu.Lock()
				u.acked[name] = max(u.acked[name], gen)
				u.mu.Unlock()
			}
		})
	}
	t.Cleanup(u.end)
	return u
}

func (u *users) end() {
	u.stop()
	u.done.Wait()
}

// written counts what was acknowledged.
func (u *users) written() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, gen := range u.acked {
		n += int(gen)
	}
	return n
}

// enoughNames is how many applications must have been acknowledged, or hardly anything was tried.
const enoughNames = 20

// names counts the applications of which something was acknowledged.
func (u *users) names() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.acked)
}

// check looks for all that was acknowledged, after the end.
func (u *users) check(t *testing.T, have []view.AppView) {
	t.Helper()
	gens := map[string]skerry.Generation{}
	for _, a := range have {
		gens[a.Key.Name] = a.Gen
	}
	for name, gen := range u.acked {
		if gens[name] < gen {
			t.Errorf("%s is at generation %d, %d was acknowledged", name, gens[name], gen)
		}
	}
	if len(u.acked) < enoughNames {
		t.Errorf("only %d applications were acknowledged; the users hardly wrote", len(u.acked))
	}
}

// sleeping is the manifest of an application whose one service, a program of the host, does nothing.
func sleeping(name string, replicas, round int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","runtime":"native","command":["/bin/sleep","100000"],"replicas":%d,
"env":{"ROUND":"%d"},"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`, name, replicas, round)
}
