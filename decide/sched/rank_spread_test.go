package sched

import (
	"testing"

	"skerry.dev/skerry"
)

func TestSpread(t *testing.T) {
	in := func(area string) func(*Worker) { return func(w *Worker) { w.Area = area } }
	list := []*Worker{worker("n1", 4000, skerry.GiB, in("north")), worker("n2", 4000, skerry.GiB, in("north")), worker("s1", 4000, skerry.GiB, in("south")), worker("x", 2000, skerry.GiB)}
	r := func(p ...Peer) *Request { return withPeers(request(100, 1), p...) }
	checkOrder(t, "nobody: room", order(Spread{}, r(), list...), "n1=n2=s1 x")
	checkOrder(t, "another area first", order(Spread{}, r(peer("n1", "web")), list...), "s1 x n2 n1")
	checkOrder(t, "few of the service before all else", order(Spread{}, r(peer("n1", "web"), peer("s1", "web"), peer("s1", "web"), peer("x", "web")), list...), "n2 x n1 s1")
	checkOrder(t, "then few of the application", order(Spread{}, r(peer("n1", "db"), peer("s1", "db"), peer("gone", "web")), list...), "n2 x n1=s1")
}
