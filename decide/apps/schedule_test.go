package apps

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// The parser of schedules panics on a time zone without a schedule; the manifest is refused, and the field named.
func TestSchedules(t *testing.T) {
	c := controller(t, Quota{})
	scheduled := func(text string) Apply {
		return apply(1, func(a *Apply) {
			s := &a.App.Spec.Services[0]
			s.Mode, s.Replicas, s.Cron = spec.ModeCron, nil, &spec.CronSpec{Schedule: text}
		})
	}
	for _, text := range []string{"TZ=0", "CRON_TZ=0", "TZ=", "TZ=UTC ", "TZ=UTC  ", "TZ=../../etc/passwd * * * * *", "* * * *", "@", "@every", "@every x", "TZ=UTC @", "*/0 * * * *", "99 * * * *", "\x00"} {
		refused(t, c, scheduled(text), skerry.CodeInvalid, "spec.services[0].cron.schedule")
		if _, err := c.Plan(now, scheduled(text).App, nil); skerry.AsError(err).Code != skerry.CodeInvalid {
			t.Errorf("a plan with %q: %v", text, err)
		}
	}
	for _, text := range []string{"*/5 * * * *", "@daily", "TZ=UTC 0 3 * * *", "CRON_TZ=UTC @hourly"} {
		do(t, c, scheduled(text))
	}
	copied := func(text string) Apply {
		return apply(1, func(a *Apply) {
			s := &a.App.Spec.Services[0]
			s.Volumes, s.Snapshots = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}, &spec.Snapshots{Schedule: text}
		})
	}
	refused(t, c, copied("every night"), skerry.CodeInvalid, "spec.services[0].snapshots.schedule")
	do(t, c, copied("CRON_TZ=UTC 0 3 * * *"))
}
