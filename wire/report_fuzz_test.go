package wire

import (
	"maps"
	"slices"
	"testing"

	"skerry.dev/skerry"
)

// FuzzWorkerReportComplete has a worker tell anything, twice. What a site keeps of its uses is what it named last, and what was told before
// of instances that are the worker's: names that it makes up do not add up, what is gone is gone, and what was told is left as it was.
func FuzzWorkerReportComplete(f *testing.F) {
	codec := New()
	report := func(changes bool, gone []skerry.InstanceID, named ...skerry.InstanceID) []byte {
		out := WorkerReport{Seq: 1, Changes: changes, Gone: gone, Instances: map[skerry.InstanceID]QoS{}}
		for _, id := range named {
			out.Instances[id] = QoS{CPU: 5}
		}
		return codec.Marshal(&out)
	}
	f.Add(report(false, nil, "a", "b"), report(true, []skerry.InstanceID{"a"}, "c"))
	f.Add(report(true, nil), report(true, nil))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		own := func(id skerry.InstanceID) bool { return len(id) > 0 && id[0] < 'b' }
		var told map[skerry.InstanceID]QoS
		for _, data := range [][]byte{first, second} {
			var r, was WorkerReport
			if codec.Unmarshal(data, &r) != nil || codec.Unmarshal(data, &was) != nil {
				return
			}
			before := maps.Clone(told)
			r.Complete(told, own)
			if r.Changes || was.Changes && r.Gone != nil {
				t.Errorf("got a report of changes still: changes %v, gone %v", r.Changes, r.Gone)
			}
			if !sameIDs(before, told) {
				t.Errorf("what was told before became %v, want %v", ids(told), ids(before))
			}
			for id := range r.Instances {
				_, named := was.Instances[id]
				_, known := before[id]
				if !named && (!was.Changes || !known || !own(id) || slices.Contains(was.Gone, id)) {
					t.Errorf("got a use of %q, which nobody told, is not the worker's, or is gone", id)
				}
			}
			for id := range was.Instances {
				if _, kept := r.Instances[id]; !kept {
					t.Errorf("got no use of %q, which was told", id)
				}
			}
			for id := range before {
				if _, kept := r.Instances[id]; was.Changes && !kept && own(id) && !slices.Contains(was.Gone, id) {
					t.Errorf("got no use of %q any more, which has not changed", id)
				}
			}
			told = r.Instances
		}
	})
}

func ids(m map[skerry.InstanceID]QoS) []skerry.InstanceID { return slices.Sorted(maps.Keys(m)) }

func sameIDs(a, b map[skerry.InstanceID]QoS) bool { return slices.Equal(ids(a), ids(b)) }
