package sched

// ROM is Resource-Only Match. The seed document prints no body for Algorithm 1; it is built from the prose: the filter
// is line 1 of Algorithm 2 (CPU, memory, virtualization), and the choice is the best fit.
func ROM() Policy {
	return Policy{Name: "rom", Filters: BaseFilters(), Scorer: BestFit{}}
}

// BaseFilters is the chain that every policy begins with.
func BaseFilters() []Filter {
	return []Filter{Reachable{}, NotTried{}, Virtualization{}, Area{}, Distance{}, HostPorts{}, Capacity{}}
}

// BestFit prefers the worker that is fullest after the placement, so that large holes stay for large services. The score
// is the mean share in use over CPU and memory after placing, 0 to 1.
type BestFit struct{}

func (BestFit) Name() string { return "best-fit" }

func (BestFit) Score(r *Request, w *Worker) float64 {
	capacity, free, need := w.Capacity.Vector(), w.Available.Vector(), r.Need.Vector()
	sum, n := 0.0, 0
	for i := range 2 { // CPU and memory
		if capacity[i] > 0 {
			sum += 1 - float64(free[i]-need[i])/float64(capacity[i])
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// Policies lists the policies by name; the cluster core is given it by main.
func Policies() map[string]Policy { return map[string]Policy{"rom": ROM()} }
