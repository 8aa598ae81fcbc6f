// Command greenest is a scheduling plugin for Skerry, as a WebAssembly module: it prefers the worker on which an instance
// draws the fewest watts. Workers that do not tell what they draw keep the score that they have.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// query is the part of a query that matters here; docs/PLUGINS.md has all of it.
type query struct {
	Need       resources   `json:"need"`
	Candidates []candidate `json:"candidates"`
}

type resources struct {
	CPU float64 `json:"cpu"` // cores
}

type candidate struct {
	Name      string    `json:"name"`
	Capacity  resources `json:"capacity"`
	Available resources `json:"available"`
	Power     *struct {
		Idle float64 `json:"idle"` // watts
		Busy float64 `json:"busy"` // watts, all cores busy
	} `json:"power"`
}

type reply struct {
	Scores map[string]float64 `json:"scores"`
}

func main() {
	var q query
	if err := json.NewDecoder(os.Stdin).Decode(&q); err != nil {
		fmt.Fprintln(os.Stderr, "greenest:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply{score(&q)}); err != nil {
		os.Exit(1)
	}
}

// watts is what the instance adds: its part of the way from idle to busy, and, where nothing runs yet and the machine
// could sleep, what it takes to be awake at all.
func watts(need resources, c *candidate) (float64, bool) {
	if c.Power == nil || c.Power.Busy <= 0 || c.Capacity.CPU <= 0 {
		return 0, false
	}
	w := (c.Power.Busy - c.Power.Idle) * need.CPU / c.Capacity.CPU
	if c.Available.CPU >= c.Capacity.CPU {
		w += c.Power.Idle
	}
	return max(w, 0.01), true
}

// score gives the thriftiest worker 1, and one that draws twice as much 0.5.
func score(q *query) map[string]float64 {
	out := map[string]float64{}
	least := 0.0
	for i := range q.Candidates {
		if w, ok := watts(q.Need, &q.Candidates[i]); ok {
			out[q.Candidates[i].Name] = w
			if least == 0 || w < least {
				least = w
			}
		}
	}
	for name, w := range out {
		out[name] = least / w
	}
	return out
}
