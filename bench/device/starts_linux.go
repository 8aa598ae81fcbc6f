package device

import (
	"context"
	"fmt"
	"slices"
)

// startCase is how long a place takes to start a program; it is no program's figure.
const startCase = "start"

// starts measures how long each place takes to start a program that prints one line.
func (m *measuring) starts(ctx context.Context) error {
	tool := m.tools[toolKernels]
	if tool == nil || tool.missing != nil || len(m.o.Only) > 0 && !slices.Contains(m.o.Only, startCase) {
		return nil
	}
	for i := range m.places {
		at := m.places[(i+m.r.Rounds)%len(m.places)]
		out, err := at.run(ctx, job{tool: tool, name: toolKernels, args: []string{"memory", "1"}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && out.code != 0 {
			err = fmt.Errorf("it ended with status %d: %s", out.code, lastLine(out.out))
		}
		f := m.r.Figure(startCase, "from the call to the first line", at.told().Name)
		f.Unit = "ms"
		m.sample(f, float64(out.first)/1e6, err)
	}
	return nil
}
