package core

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry/cluster/placing"
	"skerry.dev/skerry/wire"
)

// A placement is one record, in this order, whoever owns which part of it.
func TestPlacementRecord(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := placement{Origin: "root", Group: "g", location: location{"w", "w", "w/d=1", []string{"v"}, 1},
		Removing: true, Refused: true, Placed: now, Extra: 1,
		Timeline: []wire.Step{{}}, Decision: &wire.Decision{}, Started: placing.Started{Ran: true, Late: &placing.Late{}}, Next: &successor{},
		resizing: resizing{&resize{}, &wire.LimitsRefusal{}}, Original: &original{}, used: used{&wire.QoS{}, 1}, seeking: seeking{now, now, now}}
	p.Strain.Crowded, p.Balanced, p.Balances, p.Users = "x", now, 1, []wire.UserPosition{{}}
	data := mustJSON(&p)
	want := []string{"assignment", "origin", "group", "worker", "pinned", "spot", "avoid", "moves", "removing", "refused",
		"observation", "placed", "created", "extra", "timeline", "decision", "strain", "ran", "late", "next", "resize", "limits", "original"}
	var got []string
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		got = append(got, key.(string))
	}
	if len(got) < len(want)+3 || !slices.Equal(got[:len(want)], want) {
		t.Errorf("the record is %v, want %v and what packages own", got, want)
	}
	var again placement
	if err := json.Unmarshal(data, &again); err != nil || !bytes.Equal(mustJSON(&again), data) {
		t.Errorf("it is read as %s (%v), want %s", mustJSON(&again), err, data)
	}
}
