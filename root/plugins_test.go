package root

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
)

// opinions is a host with one plugin, which panics about the service "bad".
type opinions struct{}

func (opinions) List() []core.Plugin { return []core.Plugin{{Name: "tariff", All: true}} }

func (opinions) Watch(ctx context.Context, changed func()) { changed(); <-ctx.Done() }

func (opinions) Ask(_ context.Context, names []string, q sched.PluginQuery) []wire.PluginAnswer {
	if q.Service == "bad" {
		panic("no opinion")
	}
	return []wire.PluginAnswer{{Plugin: names[0], Scores: map[string]float64{"a": 1}}}
}

// A question to plugins comes back as an answer to the core; one at which the host fails is lost, and those after it are not.
func TestPluginsAnswerTheCore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	score, got := make(chan core.Score), make(chan any)
	var wg sync.WaitGroup
	wg.Go(func() {
		consult(ctx, slog.New(slog.DiscardHandler), opinions{}, func(msg any) bool { got <- msg; return true }, score)
	})
	score <- core.Score{ID: "x", Round: 6, Plugins: []string{"tariff"}, Query: sched.PluginQuery{Service: "bad"}}
	score <- core.Score{ID: "y", Round: 7, Plugins: []string{"tariff"}, Query: sched.PluginQuery{Service: "web"}}
	if m := (<-got).(core.Scored); m.ID != "y" || m.Round != 7 || len(m.Answers) != 1 || m.Answers[0].Plugin != "tariff" {
		t.Errorf("%+v", m)
	}
	cancel()
	wg.Wait()
}
