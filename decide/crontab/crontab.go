// Package crontab reads schedules and decides which of their times is due. It is pure, and asks no clock. The packages that decide what
// runs, or is copied, on a schedule import it, so that missed times and a clock that is set mean the same for all of them.
package crontab

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule gives the first of its times after another one; the zero time: there is none.
type Schedule = cron.Schedule

// Hint says how a schedule is written.
const Hint = "write five fields: minute hour day month weekday, such as */5 * * * *"

// Check is how long nobody looks whether the clock was set.
const Check = time.Minute

// Parse reads the five fields of a schedule, or a name such as @daily, perhaps behind a time zone ("TZ=Europe/Berlin "). Every use of the
// parser goes through here, because it panics on some texts, such as a time zone alone.
func Parse(text string) (s Schedule, err error) {
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

// SetBack reports whether a clock was set back from a time by more than a schedule's interval. By less it is waited for, so that what
// runs daily does not run twice because of a minute.
func SetBack(s Schedule, from, now time.Time) bool {
	next := s.Next(from.UTC())
	return from.After(now) && (next.IsZero() || from.Sub(now) > next.Sub(from))
}

// Due gives the last time of a schedule after from and not after now, or the zero time, and the next one after now. It takes as long
// for ten years as for a minute.
func Due(s Schedule, from, now time.Time) (due, next time.Time) {
	from = from.UTC()
	if least := now.AddDate(-10, 0, 0).UTC(); from.Before(least) {
		from = least // durations have no more than 292 years
	}
	next = s.Next(from)
	if next.IsZero() || next.After(now) {
		return time.Time{}, next
	}
	// The last second whose next time is not after now lies just before the last time.
	n := sort.Search(int(now.Sub(from)/time.Second)+1, func(n int) bool {
		t := s.Next(from.Add(time.Duration(n) * time.Second))
		return t.IsZero() || t.After(now)
	})
	due = s.Next(from.Add(time.Duration(n-1) * time.Second))
	return due, s.Next(due)
}
