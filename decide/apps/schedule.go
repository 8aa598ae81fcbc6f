package apps

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parseSchedule reads the five fields of a schedule, or a name such as @daily, perhaps behind a time zone ("TZ=Europe/Berlin "). Every
// use of the parser goes through here, because it panics on some texts, such as a time zone alone.
func parseSchedule(text string) (s cron.Schedule, err error) {
	if zone, rest, _ := strings.Cut(text, " "); strings.Contains(zone, "TZ=") && strings.TrimSpace(rest) == "" {
		return nil, errors.New("no schedule follows the time zone")
	}
	defer func() {
		if v := recover(); v != nil {
			s, err = nil, fmt.Errorf("%q is not a schedule: %v", text, v)
		}
	}()
	return cron.ParseStandard(text)
}

// clockCheck is how long nobody looks whether the clock was set.
const clockCheck = time.Minute

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

// setBack reports whether a clock was set back from a time by more than a schedule's interval. By less it is waited for, so that what
// runs daily does not run twice because of a minute.
func setBack(sched cron.Schedule, from, now time.Time) bool {
	next := sched.Next(from.UTC())
	return next.IsZero() || from.Sub(now) > next.Sub(from)
}

// lastDue gives the last time of a schedule after from and not after now, or the zero time, and the next one after now. It takes as long
// for ten years as for a minute.
func lastDue(sched cron.Schedule, from, now time.Time) (due, next time.Time) {
	from = latest(from, now.AddDate(-10, 0, 0)).UTC() // durations have no more than 292 years
	next = sched.Next(from)
	if next.IsZero() || next.After(now) {
		return time.Time{}, next
	}
	// The last second whose next time is not after now lies just before the last time.
	n := sort.Search(int(now.Sub(from)/time.Second)+1, func(n int) bool {
		t := sched.Next(from.Add(time.Duration(n) * time.Second))
		return t.IsZero() || t.After(now)
	})
	due = sched.Next(from.Add(time.Duration(n-1) * time.Second))
	return due, sched.Next(due)
}
