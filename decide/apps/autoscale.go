package apps

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// LoadActor begins the name of who changes how many instances there are of a service that follows its load; the reason ends it.
const LoadActor = "its load: "

// Load is what the instances of a service bear together, as far as it is known.
type Load struct {
	Measured int // instances that it is known of
	CPU      skerry.MilliCPU
	// What comes by ingresses: requests per second, those under way, and their mean time in milliseconds.
	Requests, Active, Ms float64
	// Told: somebody counts what comes. Waiting: something waits for an instance.
	Told, Waiting bool
}

// idle reports whether it is known that nobody asks.
func (l *Load) idle() bool { return l.Told && !l.Waiting && l.Requests == 0 && l.Active == 0 }

// Arrivals adds what comes by ingresses.
func (l *Load) Arrivals(u wire.IngressUse) { l.Requests, l.Active, l.Ms = u.Requests, u.Active, u.Ms }

// arrivals is what somebody told of the requests to services.
type arrivals struct {
	child string
	at    time.Time
	by    map[skerry.ServiceKey]wire.IngressUse
}

// demand is what comes to services, and the scalers that have their number follow it.
type demand struct {
	*lifecycle
	editor   *editor
	scalers  map[skerry.ServiceKey]*Scaler
	arrivals []arrivals                            // by ingresses, sorted by who told of it: sums must not depend on the order
	waits    map[string]map[skerry.ServiceKey]bool // services that something waits for at an ingress, by who told of it
}

func newDemand(life *lifecycle, edit *editor) *demand {
	return &demand{lifecycle: life, editor: edit, scalers: map[skerry.ServiceKey]*Scaler{}, waits: map[string]map[skerry.ServiceKey]bool{}}
}

// drop forgets the scalers of an application that is gone.
func (d *demand) drop(k skerry.AppKey) {
	maps.DeleteFunc(d.scalers, func(s skerry.ServiceKey, _ *Scaler) bool { return s.App == k })
}

// arrivalsFresh is how old it may be: whoever has nothing new tells it less often, a worker on a metered link every five minutes.
const arrivalsFresh = 11 * time.Minute

// Arrivals takes what comes to services by ingresses below a child, in place of what it was told before; nil: nothing is known.
func (d *demand) Arrivals(now time.Time, child string, by map[skerry.ServiceKey]wire.IngressUse) {
	n, found := slices.BinarySearchFunc(d.arrivals, child, func(x arrivals, name string) int { return strings.Compare(x.child, name) })
	switch {
	case len(by) == 0 && found:
		d.arrivals = slices.Delete(d.arrivals, n, n+1)
	case len(by) == 0:
	case found:
		d.arrivals[n] = arrivals{child, now, by}
	default:
		d.arrivals = slices.Insert(d.arrivals, n, arrivals{child, now, by})
	}
}

// Waits takes for which services something waits at ingresses below a child, in place of what it was told before. Those that have
// no instance get one at once.
func (d *demand) Waits(now time.Time, child string, list []skerry.ServiceKey) {
	delete(d.waits, child)
	for _, k := range list {
		a := d.apps[k.App]
		if a == nil {
			continue
		}
		s := a.Manifest.Spec.Service(k.Service)
		if s == nil || !s.Sleeps() {
			continue
		}
		if d.waits[child] == nil {
			d.waits[child] = map[skerry.ServiceKey]bool{}
		}
		d.waits[child][k] = true
		if sc := d.scalers[k]; sc != nil && *s.Replicas == 0 {
			sc.at = time.Time{} // nobody waits for the next look
			d.wakeAt(k.App, now)
		}
	}
}

// Scaler decides how many instances of a service the load asks for. It keeps only what it saw of late: after a restart it waits
// for its windows anew before it takes instances away.
//
//	demand = load / what one instance is to bear
//	more:   demand, or what it will be by its trend when an instance would have started, exceeds what there is by a tenth
//	fewer:  it is less by a tenth, which is left as room, instances not measured counted as busy, and was so all through the window
//	none:   nobody asked all through the window, and there may be none; one again as soon as something waits for it
//
// The ratio to a target, the tolerance and the windows are those of the Kubernetes horizontal pod autoscaler; the trend is a line
// by least squares.
type Scaler struct {
	wants []sample // how many were wanted
	past  []sample // demand
	at    time.Time
	lo    int
	hi    int
	want  int
	why   string
}

type sample struct {
	at time.Time
	n  float64
}

const (
	// ScaleEvery is how often a load is looked at.
	ScaleEvery = 5 * time.Second
	// tolerance is by how much of what there is demand may differ.
	tolerance = 0.1
	// trendOver is how far back the trend looks, and trendAhead how far ahead: for as long as an instance may take to start.
	// It needs trendLeast samples.
	trendOver, trendAhead, trendLeast = 2 * time.Minute, 30 * time.Second, 12
	// maxGrow and maxStep bound how much larger a service gets at a time: by a factor, or by so many.
	maxGrow, maxStep = 2, 4
)

// Due reports whether it is time to look again.
func (s *Scaler) Due(now time.Time) bool {
	return s.at.IsZero() || now.Before(s.at) || now.Sub(s.at) >= ScaleEvery
}

// Want gives how many instances there should be, of a service that has current ones, from lo to hi.
func (s *Scaler) Want(now time.Time, spec *spec.ServiceSpec, lo, hi, current int, l Load) int {
	if now.Before(s.at) { // the clock was set back
		s.wants, s.past = nil, nil
	}
	s.at, s.lo, s.hi = now, lo, hi
	up, down := spec.Scale.Windows()
	decide := func(n int, why string) int {
		s.want, s.why = min(max(n, lo), hi), why
		switch {
		case n < lo:
			s.why += fmt.Sprintf("; at least %d are kept", lo)
		case n > hi:
			s.why += fmt.Sprintf("; at most %d are allowed", hi)
		}
		return s.want
	}
	if current == 0 && lo == 0 {
		s.wants, s.past = nil, nil
		if l.Waiting {
			return decide(1, "something waits for it at an ingress")
		}
		return decide(0, "it sleeps until something comes by an ingress")
	}
	if current < lo || current > hi {
		return decide(current, fmt.Sprintf("there are to be %d to %d", lo, hi))
	}
	demand, why, ok := demandOf(spec, l)
	if !ok || l.Measured == 0 {
		s.wants, s.past = nil, nil
		return decide(current, "nothing is known of the load yet")
	}
	if s.past = since(append(s.past, sample{now, demand}), now.Add(-trendOver)); l.full(spec) {
		s.past = nil // what they bear is what they can, and what comes once they are more is no trend
	}
	unmeasured := float64(max(0, current-l.Measured))
	n := current
	switch ahead := s.ahead(now, demand); {
	case lo == 0 && l.idle():
		n, why = 0, "nobody asks for it"
	case demand > float64(current)*(1+tolerance):
		n = ceil(demand)
	case ahead > float64(current)*(1+tolerance):
		n, why = ceil(ahead), fmt.Sprintf("%s, and by its trend %.1f times in %s", why, ahead, trendAhead)
	case demand+unmeasured < float64(current)*(1-tolerance):
		n = min(max(ceil(demand*(1+tolerance)+unmeasured), 1), current) // with room, so that noise does not take it back
	}
	keep := max(up, down)
	full := len(s.wants) > 0 && now.Sub(s.wants[0].at) >= down // the window for fewer was seen whole
	fullUp := len(s.wants) > 0 && now.Sub(s.wants[0].at) >= up || up == 0
	s.wants = since(append(s.wants, sample{now, float64(n)}), now.Add(-keep-ScaleEvery))
	lowest, highest := n, n
	for _, w := range s.wants {
		if now.Sub(w.at) <= up {
			lowest = min(lowest, int(w.n))
		}
		if now.Sub(w.at) <= down {
			highest = max(highest, int(w.n))
		}
	}
	switch {
	case lowest > current && fullUp:
		return decide(min(lowest, max(maxGrow*current, current+maxStep)), why)
	case highest < current && full:
		return decide(max(highest, current/2), why)
	case n != current:
		word, window := "more", up
		if n < current {
			word, window = "fewer", down
		}
		return decide(current, fmt.Sprintf("%s; %d, %s, are not wanted for %s yet", why, n, word, window))
	}
	return decide(current, why)
}

// full reports whether the instances use all that they have.
func (l *Load) full(spec *spec.ServiceSpec) bool {
	return spec.Resources.CPU > 0 && float64(l.CPU) >= 0.95*float64(spec.Resources.CPU)*float64(l.Measured)
}

// demandOf tells how many instances a load is for.
func demandOf(svc *spec.ServiceSpec, l Load) (demand float64, why string, ok bool) {
	most := func(d float64, text string, args ...any) {
		if !ok || d > demand {
			demand, why, ok = d, fmt.Sprintf(text, args...), true
		}
	}
	t := &svc.Scale.Target
	if t.CPU != nil && svc.Resources.CPU > 0 {
		one := float64(svc.Resources.CPU) * *t.CPU
		most(float64(l.CPU)/one, "cpu: %dm of %.0fm that one is to bear", l.CPU, one)
	}
	if t.Requests != nil {
		most(l.Requests / *t.Requests, "requests: %.1f a second of %g that one is to bear", l.Requests, *t.Requests)
	}
	if t.Queue != nil {
		most(l.Active / *t.Queue, "queue: %.0f requests under way of %g that one is to bear", l.Active, *t.Queue)
	}
	if t.Latency != nil {
		// Nothing says how time falls with the number of instances; that it does in proportion errs towards more.
		ms, d := float64(time.Duration(*t.Latency))/1e6, 0.0
		if l.Requests > 0 {
			d = float64(l.Measured) * min(l.Ms/ms, maxGrow)
		}
		most(d, "latency: %.0f ms of %g that they are to take", l.Ms, ms)
	}
	if cpu := svc.Resources.MostCPU(); t.CPU == nil && cpu > 0 && (svc.Runtime == "" || svc.Runtime == spec.RuntimeAuto) {
		// Whatever it is to follow: near its saturation point more instances help, and a runtime that bears more is looked for only then.
		one := float64(cpu) * svc.ClearShare()
		most(float64(l.CPU)/one, "its saturation point: %dm of %.0fm of cpu up to which one is clear of it", l.CPU, one)
	}
	return demand, why, ok
}

// ahead gives the demand that the trend leads to, at most twice what it is.
func (s *Scaler) ahead(now time.Time, demand float64) float64 {
	n := float64(len(s.past))
	if len(s.past) < trendLeast {
		return demand
	}
	var sx, sy, sxx, sxy float64
	for _, p := range s.past {
		x := p.at.Sub(now).Seconds()
		sx, sy, sxx, sxy = sx+x, sy+p.n, sxx+x*x, sxy+x*p.n
	}
	d := n*sxx - sx*sx
	if d <= 0 {
		return demand
	}
	slope := (n*sxy - sx*sy) / d
	return min(2*demand, (sy-slope*sx)/n+slope*trendAhead.Seconds())
}

// ceil rounds up, but not what exceeds a whole number by a hair.
func ceil(x float64) int { return int(math.Ceil(min(x, 1e6) - 0.001)) }

func since(list []sample, t time.Time) []sample {
	return slices.DeleteFunc(list, func(s sample) bool { return s.at.Before(t) })
}

// View tells what was decided last.
func (s *Scaler) View() *view.ScaleView {
	return &view.ScaleView{Min: s.lo, Max: s.hi, Want: s.want, Why: s.why, At: s.at}
}

// Why says what the last decision was made from.
func (s *Scaler) Why() string { return s.why }

// load sums what the ready instances of a service bear. Of those whose holder is out of touch nothing is known: neither what
// they use now nor what comes to them.
func (d *demand) load(now time.Time, k skerry.ServiceKey) (l Load) {
	shared := sharedUses{}
	for _, i := range d.Instances(k) {
		if !i.Live() || !i.IsReady() || i.QoS == nil && i.Shared == nil || outOfTouch(i) {
			continue
		}
		l.Measured++
		if q := shared.of(i); q != nil {
			l.CPU += q.CPU
		}
	}
	var sum wire.IngressUse
	for _, x := range d.arrivals {
		if now.Sub(x.at) <= arrivalsFresh {
			use, told := x.by[k]
			sum, l.Told = sum.Add(use), l.Told || told
		}
	}
	l.Arrivals(sum)
	for _, by := range d.waits {
		l.Waiting = l.Waiting || by[k]
	}
	return l
}

// autoscale changes the number of instances of services that follow their load.
func (d *demand) autoscale(now time.Time, a *App, fx *wire.Effects) {
	if !a.Deployed || a.Deleting || a.Delegated { // whoever one is delegated to knows what share of it is there
		return
	}
	for i := range a.Manifest.Spec.Services {
		s := &a.Manifest.Spec.Services[i]
		k := skerry.ServiceKey{App: a.Key(), Service: s.Name}
		if s.Scale == nil || s.Mode != spec.ModeService {
			delete(d.scalers, k)
			continue
		}
		sc := d.scalers[k]
		if sc == nil {
			sc = &Scaler{}
			d.scalers[k] = sc
		}
		d.wakeAt(a.Key(), now.Add(ScaleEvery))
		if !sc.Due(now) {
			continue
		}
		lo, hi := s.Scale.Limits()
		was := *s.Replicas
		if n := sc.Want(now, s, lo, hi, was, d.load(now, k)); n != was {
			_, more, err := d.editor.scale(now, k, n, LoadActor+sc.why)
			if err != nil {
				sc.why += "; " + err.Error()
				continue
			}
			fx.Merge(more)
		}
	}
}

// Scale tells what the load of a service asks for, or nil where its number of instances does not follow it.
func (d *demand) Scale(k skerry.ServiceKey) *view.ScaleView {
	a, sc := d.apps[k.App], d.scalers[k]
	if a == nil || sc == nil {
		return nil
	}
	s := a.Manifest.Spec.Service(k.Service)
	if s == nil || s.Scale == nil {
		return nil
	}
	return sc.View()
}

// keepScaled leaves the number of instances as it is in a manifest that is applied again, where it follows their load from
// now on: one that bears something must not begin anew with the fewest.
func keepScaled(app *spec.Application, old *App) {
	for i := range app.Spec.Services {
		s := &app.Spec.Services[i]
		was := old.Manifest.Spec.Service(s.Name)
		if s.Scale == nil || was == nil || was.Replicas == nil || !old.Deployed {
			continue
		}
		lo, hi := s.Scale.Limits()
		n := min(max(*was.Replicas, lo), hi)
		s.Replicas = &n
	}
}
