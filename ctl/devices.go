package ctl

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// deviceShown is a device of a worker, with who has it.
type deviceShown struct {
	Name      string            `json:"name"`
	Class     string            `json:"class,omitempty"` // empty: it is offered by its path
	Worker    string            `json:"worker"`
	At        string            `json:"at,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Shares    int               `json:"shares"`
	Instances []string          `json:"instances"`
}

// listDevices joins what workers offer with what instances have: a device that is gone, and that an instance still has, is listed, too.
func listDevices(ctx context.Context, client *api.Client, _ listQuery) ([]item, error) {
	workers, err := client.Workers(ctx)
	if err != nil {
		return nil, err
	}
	instances, err := client.Instances(ctx, api.InstanceFilter{})
	if err != nil {
		return nil, err
	}
	var out []item
	for _, worker := range workers {
		facts := worker.Facts
		if facts == nil {
			facts = &wire.WorkerFacts{}
		}
		details, names := facts.Details(), slices.Clone(facts.Attachable)
		have := map[string][]string{}
		for _, instance := range instances {
			for _, d := range instance.Devices {
				if instance.Worker == worker.Name {
					have[d], names = append(have[d], string(instance.ID)), append(names, d)
				}
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			d := deviceShown{Name: name, Worker: string(worker.Name), At: details[name].At, Labels: details[name].Labels,
				Shares: max(details[name].Shares, 1), Instances: append([]string{}, have[name]...)}
			if !strings.HasPrefix(name, "/") {
				d.Class = spec.DeviceClass(name)
			}
			if !slices.Contains(facts.Attachable, name) {
				d.At = "gone"
			}
			out = append(out, item{name: name, value: d, labels: d.Labels, cells: []string{name, d.Class, d.Worker, strconv.Itoa(len(d.Instances)),
				strconv.Itoa(d.Shares), d.At, pairsText(d.Labels, ",")}, wide: []string{strings.Join(d.Instances, ",")}})
		}
	}
	return out, nil
}
