package journal

import (
	"fmt"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

func events(n int, at time.Time) []wire.Event {
	out := make([]wire.Event, n)
	for i := range out {
		out[i] = wire.Event{At: at, Reason: fmt.Sprint(i)}
	}
	return out
}

// drain reads what waits and says whether the reader was told that it missed something.
func drain(s *Subscription) (n int, missed bool) {
	for len(s.C) > 0 {
		if (<-s.C).Missed {
			missed = true
		} else {
			n++
		}
	}
	return n, missed
}

// A slow reader is told that it missed something by the last word in line, and not only when something happens again:
// nothing may happen for hours.
func TestMissedIsToldWithoutAnotherEvent(t *testing.T) {
	j := New(Limits{})
	s := j.Subscribe()
	defer s.Close()
	now := time.Now()
	for range subscriberBuffer + 10 {
		j.Announce(nil, []wire.Change{{Instance: "a"}})
	}
	if n, missed := drain(s); !missed || n != subscriberBuffer-1 {
		t.Errorf("%d notices, missed: %v", n, missed)
	}
	j.Announce(events(1, now), nil)
	if n, missed := drain(s); missed || n != 1 {
		t.Errorf("after it looked again: %d notices, missed: %v", n, missed)
	}
}

func TestReplaceTellsToLookAgain(t *testing.T) {
	j := New(Limits{})
	s := j.Subscribe()
	defer s.Close()
	from := j.Fresh()
	from.Record(time.Now(), events(3, time.Now()))
	j.Replace(from)
	if n, missed := drain(s); n != 0 || !missed {
		t.Errorf("%d notices, missed: %v", n, missed)
	}
	if got := j.List(0, nil); len(got) != 3 || got[2].Seq != 3 {
		t.Errorf("holds %v", got)
	}
}

// What is deleted must fit into a commit, also after a long sleep or with lower limits than before.
func TestRetentionInSteps(t *testing.T) {
	now := time.Now()
	j := New(Limits{Events: 10_000})
	var stored []wire.Write
	for range 10 {
		stored = append(stored, j.Record(now, events(1000, now))...)
	}
	j = New(Limits{Events: 10})
	for _, w := range stored {
		if ours, err := j.Load(w.Key, w.Value); !ours || err != nil {
			t.Fatal(err)
		}
	}
	deleted := map[string]bool{}
	for i := 0; len(j.List(0, nil)) > 10; i++ {
		if i > 100 {
			t.Fatal("old events stay")
		}
		writes := j.Record(now, events(1, now))
		if len(writes) > maxDrop+2 {
			t.Fatalf("%d writes for one event", len(writes))
		}
		for _, w := range writes {
			if w.Value == nil {
				deleted[w.Key] = true
			}
		}
	}
	if kept := j.List(0, nil); len(deleted) < 9990 || deleted[key(kept[0].Seq)] {
		t.Errorf("%d deleted, oldest kept %d", len(deleted), kept[0].Seq)
	}
	later := now.Add(8 * 24 * time.Hour)
	j.Record(later, events(1, later))
	if kept := j.List(0, nil); len(kept) != 1 {
		t.Errorf("%d events are kept for longer than their age", len(kept))
	}
}

// Who has much to tell pushes out its own events, and not those of others.
func TestNobodyCrowdsOthersOut(t *testing.T) {
	j, now := New(Limits{Events: 100}), time.Now()
	j.Record(now, events(20, now))
	deleted := 0
	for range 50 {
		list := events(30, now)
		for i := range list {
			list[i].Cluster, list[i].Worker = "a", "liar"
		}
		list[7].Worker = "honest"
		for _, w := range j.Record(now, list) {
			if w.Value == nil {
				deleted++
			}
		}
	}
	count := map[skerry.WorkerName]int{}
	kept := j.List(0, nil)
	for i, e := range kept {
		count[e.Worker]++
		if i > 0 && e.Seq <= kept[i-1].Seq {
			t.Error("they are out of order")
		}
	}
	if len(kept) != 100 || count["liar"] != 50 || count["honest"] < 30 || deleted != 20+50*30-100 {
		t.Errorf("%d are kept, %v; %d were deleted", len(kept), count, deleted)
	}
}

func TestLoadRefusesDamage(t *testing.T) {
	j := New(Limits{})
	if ours, _ := j.Load("app/x", nil); ours {
		t.Error("took a record of others")
	}
	for _, k := range []string{"event/x", "event/1"} {
		if ours, err := j.Load(k, []byte("{")); !ours || err == nil {
			t.Errorf("%s: %v %v", k, ours, err)
		}
	}
}

// However many events come at once, no more are kept than allowed for long.
func TestRetentionKeepsUp(t *testing.T) {
	j, now := New(Limits{Events: 10}), time.Now()
	for range 20 {
		j.Record(now, events(1000, now))
	}
	if n := len(j.List(0, nil)); n > 1000 {
		t.Errorf("%d events are kept", n)
	}
}

// A full journal counts all events for each batch, which makes nothing of each of them.
func TestFullJournalCountsCheaply(t *testing.T) {
	j := New(Limits{Events: 1000})
	now := time.Unix(1e9, 0)
	events := func(n int) (out []wire.Event) {
		for i := range n {
			out = append(out, wire.Event{At: now, Cluster: skerry.ClusterName(fmt.Sprintf("site-%d", i%10)), Reason: "Ready"})
		}
		return out
	}
	j.Record(now, events(1000))
	one := events(1)
	if got := testing.AllocsPerRun(100, func() { j.Record(now, one) }); got > 100 {
		t.Errorf("an event beside 1,000: %.0f allocations, want some", got)
	}
}
