package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Stats are what the tracking knows of the last pictures.
type Stats struct {
	Pictures int     `json:"pictures"` // ever
	Rate     float64 `json:"rate"`     // pictures a second that passed all stages
	// Median and High (the 95th of a hundred) are ms by stage. What lies between two machines is right as far as their clocks agree.
	Median map[string]float64 `json:"median"`
	High   map[string]float64 `json:"high"`
	// Recall is which part of the objects in the pictures was followed; Switches, how often another track took one over.
	Recall   float64 `json:"recall"`
	Switches int     `json:"switches"`
}

// kept are how many pictures the times are of.
const kept = 500

type tracking struct {
	mu     sync.Mutex
	of     map[uint32]*tracker
	times  map[string][]float64
	ends   []time.Time
	number int
}

func newTracking() *tracking {
	return &tracking{of: map[uint32]*tracker{}, times: map[string][]float64{}}
}

func (t *tracking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(t.stats())
		return
	}
	var p picture
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&p); err != nil || p.Width < 1 || p.Width > maxWidth || p.Height < 1 || p.Height > maxHeight {
		http.Error(w, "that is nothing that was found in a picture", http.StatusBadRequest)
		return
	}
	if !t.add(&p) {
		http.Error(w, "there are cameras enough", http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (t *tracking) add(p *picture) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.of[p.Camera]
	if k == nil {
		if len(t.of) == maxCameras {
			return false
		}
		k = &tracker{}
		t.of[p.Camera] = k
	}
	k.add(p)
	now := time.Now()
	t.number++
	for stage, d := range map[string]time.Duration{"transport": p.Aggregated.Sub(p.Captured), "waiting": p.Sent.Sub(p.Aggregated), "handing": p.Began.Sub(p.Sent), "detection": p.Detected.Sub(p.Began), "tracking": now.Sub(p.Detected), "total": now.Sub(p.Captured)} {
		list := append(t.times[stage], float64(d)/float64(time.Millisecond))
		t.times[stage] = list[max(0, len(list)-kept):]
	}
	t.ends = append(t.ends, now)
	t.ends = t.ends[max(0, len(t.ends)-kept):]
	return true
}

func (t *tracking) stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Pictures: t.number, Median: map[string]float64{}, High: map[string]float64{}}
	if n := len(t.ends); n > 1 {
		s.Rate = float64(n-1) / t.ends[n-1].Sub(t.ends[0]).Seconds()
	}
	for stage, list := range t.times {
		list = slices.Sorted(slices.Values(list))
		s.Median[stage], s.High[stage] = list[len(list)/2], list[len(list)*95/100]
	}
	objects, found := 0, 0
	for _, k := range t.of {
		objects, found, s.Switches = objects+k.Objects, found+k.Found, s.Switches+k.Switches
	}
	if objects > 0 {
		s.Recall = float64(found) / float64(objects)
	}
	return s
}
