package sim

import (
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

func TestQoSIsFoldedUpward(t *testing.T) {
	w := newWorld(t, 3)
	w.AddCluster("a")
	n := w.AddWorker("a", "w1", facts(4000))
	w.Run(time.Second)
	w.must(t, w.Root, app("shop", 2))
	w.Run(time.Second)
	qos := map[skerry.InstanceID]wire.QoS{}
	for _, i := range w.RootCore().Apps.Instances(web("shop")) {
		qos[i.ID] = wire.QoS{CPU: 200, Memory: 30 * skerry.MiB}
	}
	w.Do(n, worker.Usage{Instances: qos})
	w.Run(30 * time.Second)
	v := w.RootCore().Apps.View(w.RootCore().Apps.App(web("shop").App), "root", false)
	if q := v.Services[0].QoS; q == nil || q.CPU != 400 || q.Memory != 60*skerry.MiB {
		t.Errorf("the root shows %+v", q)
	}
}
