package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"
)

// lane are jobs of a kind, those that took longest first.
type lane struct {
	queue   []job
	running int
}

func (l *lane) left() bool { return l.running > 0 || len(l.queue) > 0 }

func (l *lane) add(j job) {
	l.queue = append(l.queue, j)
	slices.SortStableFunc(l.queue, func(a, b job) int { return cmp.Compare(b.seconds, a.seconds) })
}

const (
	sampleEvery = 250 * time.Millisecond
	// sampleOver is over how long the load is looked at before something else begins; after a test that takes no time a tick is enough.
	sampleOver       = 4 * time.Second
	sampleOverAtLast = 2 * time.Second
	longTest         = 20.0 // seconds
	// full is the share of the processors that work of ordinary priority may take while something else still begins.
	// Tests that have begun first wait and then compute: more of them would starve each other's virtual machines.
	full = 0.7
	// fullAtLast is the same when nothing is left that computes: what tests that wait leave idle is then lost, and more of them run.
	fullAtLast = 0.9
	moreAtLast = 3 // times as many
)

// load looks at how busy the processors are. What virtual machines, containers and agents of the tests use is in it, whoever
// started them; what runs with low priority is not.
type load struct {
	began       time.Time
	over        time.Duration
	busy, total float64
}

// newLoad begins a look at the load, after a test has begun that takes so many seconds.
func newLoad(seconds float64, atLast bool) *load {
	l := &load{began: time.Now(), over: sampleOver}
	switch {
	case seconds < longTest:
		l.over = sampleEvery
	case atLast:
		l.over = sampleOverAtLast
	}
	l.busy, _, l.total = processorTime()
	return l
}

// room says whether something else may begin. It starts a new look at the load when this one is over.
func (l *load) room(full float64) bool {
	if time.Since(l.began) < l.over {
		return false
	}
	busy, _, total := processorTime()
	ok := total <= l.total || (busy-l.busy)/(total-l.total) < full
	l.began, l.busy, l.total = time.Now(), busy, total
	return ok
}

// processorTime gives the time since the machine started that the processors were busy with ordinary work, and with work of low
// priority, and all their time, in clock ticks; 0 where the system does not tell.
func processorTime() (ordinary, low, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, 0
	}
	var user, system, idle, iowait, irq, softirq, steal float64
	if _, err := fmt.Sscanf(string(text), "cpu %g %g %g %g %g %g %g %g", &user, &low, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0, 0, 0
	}
	ordinary = user + system + irq + softirq + steal
	return ordinary, low, ordinary + low + idle + iowait
}
