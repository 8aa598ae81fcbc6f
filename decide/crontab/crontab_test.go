package crontab

import (
	"testing"
	"time"
)

// TestDueIsThatOfTheLoop: the search finds what going from time to time finds.
func TestDueIsThatOfTheLoop(t *testing.T) {
	for _, text := range []string{"* * * * *", "*/7 3 * * *", "30 2 * * 0", "TZ=Europe/Berlin 30 2 * * *", "0 0 29 2 *", "0 0 30 2 *", "@hourly"} {
		sched, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Date(2026, 3, 27, 1, 2, 3, 456, time.UTC)
		for _, d := range []time.Duration{-time.Hour, 0, time.Second, 57 * time.Second, 3 * time.Hour, 50 * time.Hour, 1000 * time.Hour, 2500 * time.Hour} {
			now, want := from.Add(d), time.Time{}
			next := sched.Next(from)
			for ; !next.IsZero() && !next.After(now); next = sched.Next(next) {
				want = next
			}
			if due, after := Due(sched, from, now); !due.Equal(want) || !after.Equal(next) {
				t.Errorf("%s after %v: %v, then %v, instead of %v, then %v", text, d, due, after, want, next)
			}
		}
	}
}

// counted counts how often a schedule is asked.
type counted struct {
	Schedule
	asked *int
}

func (c counted) Next(t time.Time) time.Time { *c.asked++; return c.Schedule.Next(t) }

// TestDueIsQuick: ten years of minutes take no longer than a minute.
func TestDueIsQuick(t *testing.T) {
	sched, err := Parse("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	from := time.Unix(0, 0)
	for _, years := range []int{1, 10, 56} {
		if Due(counted{sched, &asked}, from, from.AddDate(years, 0, 0)); asked > 40 {
			t.Errorf("after %d years the schedule is asked %d times", years, asked)
		}
		asked = 0
	}
}

func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"*/5 * * * *", "TZ=0", "TZ=UTC @daily", "@every 1h", "0 0 30 2 *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse(text); err == nil {
			s.Next(time.Unix(0, 0).UTC())
		}
	})
}
