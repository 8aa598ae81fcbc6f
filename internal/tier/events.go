package tier

import (
	"log/slog"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// LogEvents writes events into the log, each with what it is about.
func LogEvents(log *slog.Logger, events []wire.Event) {
	for _, e := range events {
		var about []any
		add := func(name, value string) {
			if value != "" {
				about = append(about, name, value)
			}
		}
		if e.App != (skerry.AppKey{}) {
			add("app", e.App.String())
		}
		add("service", e.Service)
		add("instance", string(e.Instance))
		add("cluster", string(e.Cluster))
		add("worker", string(e.Worker))
		log.Info(e.Reason, append(about, "text", e.Text)...)
	}
}
