package evidence

import (
	"encoding/json"
	"testing"
	"time"
)

var t0 = time.Unix(1_700_000_000, 0)

// One outlier lowers the rank, and never more than that, however often it is seen within a minute.
func TestOneOutlier(t *testing.T) {
	var b Book
	if !b.Mark(t0, Capacity, "tall") {
		t.Fatal("the first mark does not count")
	}
	for n := range 50 {
		if at := t0.Add(time.Duration(n) * time.Second); b.Mark(at, Capacity, "tall") {
			t.Errorf("counted again after %s", at.Sub(t0))
		}
		if b.Judge(t0.Add(time.Duration(n) * time.Second)) {
			t.Fatal("in quarantine for one outlier")
		}
	}
	if r := b.Rank(); r >= 1 || r < 0.6 {
		t.Errorf("rank %g", r)
	}
	for range 48 { // a day
		b.Judge(b.At.Add(30 * time.Minute))
	}
	if !b.Clean() || b.Rank() != 1 || len(b.Entries) != 0 {
		t.Errorf("it is not forgotten: %+v", b)
	}
}

// Three marks a minute apart are a reason, one kind at a time; the rank falls with each; it ends by itself, later each time.
func TestQuarantine(t *testing.T) {
	var b Book
	now, last := t0, time.Duration(0)
	for times := range 4 {
		before := b.Rank()
		for n := range 3 {
			if b.Quarantine != "" {
				if times == 0 {
					t.Fatalf("in quarantine after %d marks", n)
				}
				break // it was let out with a rest of what was counted before
			}
			now = now.Add(Apart)
			b.Mark(now, Place, "far")
			b.Mark(now, Use, "huge")
			if r := b.Rank(); r >= before && times == 0 {
				t.Errorf("mark %d leaves the rank at %g", n, r)
			}
			before = b.Rank()
			b.Judge(now)
		}
		if b.Quarantine == "" || b.Times != times+1 {
			t.Fatalf("three marks are not enough: %+v", b)
		}
		due := b.Due()
		if b.Judge(due.Add(-2 * time.Second)) {
			t.Error("it ends before its time")
		}
		if !b.Judge(b.Due()) || b.Quarantine != "" {
			t.Error("it does not end in time")
		}
		if d := due.Sub(now); d < last*3/2 || d < 30*time.Minute {
			t.Errorf("quarantine %d lasts %s, the one before %s", times, d, last)
		} else {
			last = d
		}
		now = b.At
	}
}

// What speaks for a member counts, within bounds: who was honest for long is given more time, and not for ever.
func TestGoodBehaviour(t *testing.T) {
	var b Book
	now := t0
	for range 1000 {
		now = now.Add(Apart)
		b.Good(now, Place)
	}
	marks := 0
	for ; b.Quarantine == "" && marks < 50; marks++ {
		now = now.Add(Apart)
		b.Mark(now, Place, "far")
		b.Judge(now)
	}
	if marks < 5 || marks > 12 {
		t.Errorf("%d marks", marks)
	}
}

// A contradiction counts when it lasts, odd messages when they are many, and refusals are no reason for quarantine.
func TestChecksAndBursts(t *testing.T) {
	var b Book
	for n := range 100 { // every other check is right
		if b.Check(t0.Add(time.Duration(n)*50*time.Second), Counts, n%2 == 0, "contradiction") {
			t.Fatal("a race counts")
		}
	}
	now := t0.Add(3 * time.Hour)
	if b.Check(now, Counts, true, "c") || b.Check(now.Add(30*time.Second), Counts, true, "c") || !b.Check(now.Add(Apart), Counts, true, "c") {
		t.Error("a contradiction that lasts does not count once")
	}
	for n := range 20 {
		if b.Odd(now.Add(time.Duration(n)*40*time.Second), Replays, "again") {
			t.Fatal("single odd messages count")
		}
	}
	now = now.Add(time.Hour)
	for n := range 3 {
		if counts := b.Odd(now, Replays, "again"); counts != (n == 2) {
			t.Errorf("message %d of three at once counts: %v", n, counts)
		}
	}
	var r Book
	for n := range 100 {
		r.Mark(t0.Add(time.Duration(n)*Apart), Refusals, "no room")
		r.Judge(t0.Add(time.Duration(n) * Apart))
	}
	if r.Quarantine != "" || r.Rank() > 0.3 {
		t.Errorf("%+v", r)
	}
}

// A book outlives the process, and a clock that is set back neither forgets nor multiplies.
func TestKept(t *testing.T) {
	var b Book
	for n := range 3 {
		b.Mark(t0.Add(time.Duration(n)*Apart), Tokens, "forged")
	}
	b.Judge(t0.Add(3 * Apart))
	data, err := json.Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	var c Book
	if err := json.Unmarshal(data, &c); err != nil || c.Rank() != b.Rank() || c.Quarantine != b.Quarantine {
		t.Errorf("%v, %+v", err, c)
	}
	before := c.Rank()
	if c.Judge(t0.Add(-365*24*time.Hour)) || c.Rank() != before {
		t.Error("a clock that was set back changes what is known")
	}
	var none *Book
	if none.Rank() != 1 || !none.Clean() || none.Suspected(Place) || none.Text() != "" || none.Marked() != nil {
		t.Error("of whom there is no book, something speaks")
	}
}
