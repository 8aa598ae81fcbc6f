package orchestrator

import (
	"context"
	"errors"
	"fmt"

	"skerry.dev/skerry"
	"skerry.dev/skerry/lab"
)

// labSizes are the virtual machines of 002, section 5.
func labSizes() map[string]lab.Limits {
	out := map[string]lab.Limits{}
	for name, n := range map[string]int{"S": 1, "M": 2, "L": 4, "XL": 8} {
		out[name] = lab.Limits{CPU: skerry.MilliCPU(1000 * n), Memory: skerry.Bytes(n) << 30}
	}
	return out
}

func sizeText(name string, l lab.Limits) string {
	return fmt.Sprintf("%s: %s processors, %s", name, l.CPU, l.Memory)
}

// fits refuses a size that is more than the machine: CodeUnsupported. Hosts together may have more than it has, as they
// do everywhere in a lab.
func (r room) fits(name string, l lab.Limits) error {
	if l.CPU > skerry.MilliCPU(1000*r.cpus) {
		return skerry.Errorf(skerry.CodeUnsupported, "%s has %s processors and this machine %d: a limit that is never reached measures nothing",
			name, l.CPU, r.cpus)
	}
	if l.Memory > r.totalMemory {
		return skerry.Errorf(skerry.CodeUnsupported, "%s has %s of memory and this machine %s", name, l.Memory, r.totalMemory)
	}
	return nil
}

// sized tells what hosts of a size use at rest, and how long they take for one instance and for several.
func (m *labRun) sized(ctx context.Context, f *federation) (_ map[string]float64, err error) {
	if err := wait(ctx, m.settle()); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	if err := m.load(ctx, f, values); err != nil {
		return nil, err
	}
	one, err := m.one(ctx, f, "")
	if err != nil {
		return nil, err
	}
	values["ready"] = one["ready"]
	_, remove, err := m.fill(ctx, f, m.o.Sized, values)
	delete(values, "before.memory")
	return values, errors.Join(err, remove())
}
