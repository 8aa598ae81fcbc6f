package device

import (
	"context"
	"fmt"
	"slices"
)

// startCase is how long a place takes to start a program; it is no program's figure.
const startCase = "start"

// starts measures how long each place takes to start a program that prints one line.
func (m *measuring) starts(ctx context.Context, round int, warm bool) error {
	tool := m.tools[toolKernels]
	if tool == nil || tool.missing != nil || len(m.o.Only) > 0 && !slices.Contains(m.o.Only, startCase) {
		return nil
	}
	for i := range m.places {
		at := m.places[(i+round)%len(m.places)]
		out, err := at.run(ctx, job{tool: tool, name: toolKernels, args: []string{"memory", "1"}})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if warm {
			continue
		}
		m.started(at.told().Name, out, err)
	}
	return nil
}

// started keeps what a place did.
func (m *measuring) started(name string, out outcome, err error) {
	at := slices.IndexFunc(m.r.Starts, func(s Start) bool { return s.Place == name })
	if at < 0 {
		m.r.Starts = append(m.r.Starts, Start{Place: name})
		at = len(m.r.Starts) - 1
	}
	s := &m.r.Starts[at]
	if err == nil && out.code != 0 {
		err = fmt.Errorf("it ended with status %d: %s", out.code, lastLine(out.out))
	}
	switch {
	case s.Skip != "":
	case err != nil:
		s.Skip, s.Samples = err.Error(), nil // of what fails at times nothing is told
	default:
		s.Samples = append(s.Samples, float64(out.first)/1e6)
	}
}
