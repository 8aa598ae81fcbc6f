package sched

import "testing"

func TestNotTried(t *testing.T) {
	testRule(t, NotTried{}, []ruleCase{
		{name: "new"},
		{name: "another was tried", ask: func(r *Request) { r.Avoid = []string{"x", "unknown"} }},
		{name: "tried", ask: func(r *Request) { r.Avoid = []string{"w"} }, want: "tried: it was tried just now and failed"},
	})
}

func TestReachable(t *testing.T) {
	for _, c := range []struct {
		edit func(*Worker)
		want string
	}{
		{func(*Worker) {}, ""},
		{func(w *Worker) { w.Lost = true }, "it is not in touch"},
		{func(w *Worker) { w.Refusing = "the disk is full" }, "it takes nothing new: the disk is full"},
		{func(w *Worker) { w.Lost, w.Refusing = true, "drained" }, "it is not in touch"},
	} {
		s := siteOf([]*Worker{worker("w", 4000, 1<<30, c.edit)})
		d := s.Place(epoch, ROM(), request(1, 1), 1)
		if got := ""; d.Chosen == "" {
			if got = d.Why[0].Text; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		} else if c.want != "" {
			t.Errorf("chosen, want %q", c.want)
		}
		// Who is there already is judged without it.
		if out := s.Fails(ROM(), request(1, 1), "w"); out != nil {
			t.Errorf("fails: %+v", out)
		}
	}
}
