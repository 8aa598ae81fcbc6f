package sched

// SetConnected adds a site, or says whether it is connected.
func (f *Federation) SetConnected(name string, connected bool) { f.of(name).connected = connected }

// SetTrust says how far a site is believed: by how much its score counts, from 0 to 1, and why that is less than all; and
// why it gets nothing new at all, if quarantine is not empty.
func (f *Federation) SetTrust(name string, share float64, suspicion, quarantine string) {
	s := f.of(name)
	s.trust, s.suspicion, s.quarantine = max(0, min(share, 1)), suspicion, quarantine
}

// SetCordon says why an operator keeps new instances from a site; an empty reason ends that.
func (f *Federation) SetCordon(name, why string) { f.of(name).cordon = why }

// SetLabels names the labels of a site, which belong to the caller.
func (f *Federation) SetLabels(name string, labels map[string]string) { f.of(name).labels = labels }

// Remove forgets a site.
func (f *Federation) Remove(name string) {
	i, ok := f.index[name]
	if !ok {
		return
	}
	for _, v := range f.list[i].classes {
		f.drop(v.id)
	}
	last := len(f.list) - 1
	f.list[i] = f.list[last]
	f.index[f.list[i].name] = i
	f.list = f.list[:last]
	delete(f.index, name)
}
