package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Sample is a query for trying a plugin: three workers that could run a web shop.
func Sample() sched.PluginQuery {
	worker := func(name, area string, lat, lon, idle, full, pressure float64) sched.PluginCandidate {
		return sched.PluginCandidate{Name: name, Score: 0.5, Arch: "amd64", Area: area, Labels: map[string]string{"rack": "a"},
			Location: &spec.Location{Lat: lat, Lon: lon}, Coordinate: &spec.Coordinate{},
			Capacity: spec.Resources{CPU: 8000, Memory: 16 * skerry.GiB}, Available: spec.Resources{CPU: 6000, Memory: 12 * skerry.GiB},
			Power: &wire.Power{Idle: idle, Busy: full}, Pressure: &wire.Pressure{CPU: pressure}, Age: 2}
	}
	return sched.PluginQuery{Version: sched.PluginVersion, Instance: "shop.web.1", Service: "web", Labels: map[string]string{"depot": "north"},
		Need: spec.Resources{CPU: 500, Memory: 256 * skerry.MiB}, Placement: spec.Placement{Policy: "plugin/sample"}, Seed: 7,
		Candidates: []sched.PluginCandidate{
			worker("hamburg", "harbour", 53.55, 9.99, 30, 90, 0.02),
			worker("bremen", "harbour", 53.08, 8.80, 8, 25, 0.10),
			worker("munich", "alps", 48.14, 11.58, 60, 240, 0.45),
		}}
}

func sampleText() (sched.PluginQuery, []byte) {
	q := Sample()
	text, err := json.Marshal(q)
	if err != nil {
		panic(fmt.Sprintf("the sample query cannot be written: %v", err))
	}
	return q, text
}

// Trial is what came of trying one plugin.
type Trial struct {
	Name        string             `json:"name"`
	File        string             `json:"file"` // its description
	Description *Description       `json:"description,omitempty"`
	Problem     string             `json:"problem,omitempty"`
	Load        time.Duration      `json:"load"`  // in nanoseconds
	First       time.Duration      `json:"first"` // the first answer, with the start of a program
	Then        time.Duration      `json:"then"`  // the next one
	Memory      skerry.Bytes       `json:"memory"`
	Isolation   []string           `json:"isolation,omitempty"`
	Reply       *sched.PluginReply `json:"reply,omitempty"`
}

// Check loads every plugin of a directory, asks each the query twice and ends it. The error is about the directory.
func Check(ctx context.Context, opt Options, query sched.PluginQuery) ([]Trial, error) {
	host := &Host{opt: opt}
	if host.opt.CgroupParent == "" {
		host.opt.CgroupParent = DefaultCgroupParent
	}
	if host.opt.Log == nil {
		host.opt.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if host.opt.Dir, err = filepath.Abs(opt.Dir); err != nil {
		return nil, err
	}
	found, problems, err := descriptions(host.opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of plugins: %w", err)
	}
	text, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	defer removeGroups(host.opt.CgroupParent)
	var out []Trial
	for _, p := range problems {
		out = append(out, Trial{File: p.Path, Problem: p.Message})
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, host.try(ctx, name, found[name], &query, text))
	}
	return out, nil
}

func (h *Host) try(ctx context.Context, name, file string, query *sched.PluginQuery, text []byte) Trial {
	t := Trial{Name: name, File: filepath.Base(file)}
	data, err := readDescription(file)
	if err == nil {
		t.Description, err = ParseDescription(data)
	}
	if err != nil {
		t.Problem = err.Error()
		return t
	}
	begin := time.Now()
	v := h.load(ctx, name, t.Description)
	t.Load = time.Since(begin)
	if v.run == nil {
		t.Problem = v.broken
		return t
	}
	defer v.run.close()
	for i := range 2 {
		r, err := v.ask(ctx, query, text)
		if err != nil {
			t.Problem = err.Error()
			break
		}
		t.Reply = &r
		if i == 0 {
			t.First = v.last
		}
	}
	t.Then, t.Memory, t.Isolation = v.last, v.memory, v.run.isolation()
	return t
}
