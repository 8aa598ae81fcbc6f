package sched

import "testing"

func TestVolumes(t *testing.T) {
	testRule(t, Volumes{}, []ruleCase{
		{name: "no data yet"},
		{name: "its data is here", ask: func(r *Request) { r.Data = "w" }},
		{name: "its data is elsewhere", ask: func(r *Request) { r.Data = "x" }, want: "volumes: the data in its local volumes is on worker x"},
	})
}
