package apps

import "time"

// scheduledFrom is the time up to which a schedule was followed.
func (a *App) scheduledFrom(service string) time.Time {
	last := lastRun(a.Runs[service])
	if last == nil {
		return a.CreatedAt
	}
	return latest(last.StartedAt, last.Seen)
}

// setBack makes a schedule that was followed under a clock ahead of the present one go on from now.
func (a *App) setBack(service string, now time.Time) {
	noLater(&a.CreatedAt, now)
	for _, r := range a.Runs[service] {
		noLater(&r.StartedAt, now)
		noLater(&r.EndedAt, now)
		noLater(&r.Seen, now)
	}
}
