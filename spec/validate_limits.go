package spec

import (
	"skerry.dev/skerry"
)

// limits checks what a container may use beyond what it asks for, and how fast it may read and write.
func (c *checker) limits(p string, r Resources) {
	l, io := r.Limits, r.IO
	c.amount(p+".limits.memory", l.Memory)
	switch {
	case l.CPU < 0 || l.CPU > 0 && l.CPU < r.CPU:
		c.add(p+".limits.cpu", "raise the limit, or ask for less", "%s is less than the %s that it asks for", l.CPU, r.CPU)
	case l.CPU > 0 && r.ExclusiveCPUs > 0:
		c.add(p+".limits.cpu", "leave it out", "its own processors are all that it has")
	}
	if l.Memory < 0 || l.Memory > 0 && l.Memory < max(r.Memory, 4*skerry.MiB) {
		c.add(p+".limits.memory", "raise the limit, or ask for less", "%s is less than the %s that it needs", l.Memory, max(r.Memory, 4*skerry.MiB))
	}
	for field, v := range map[string][2]skerry.Bytes{"2Mi": {r.HugePages.Size2Mi, 2 * skerry.MiB}, "1Gi": {r.HugePages.Size1Gi, skerry.GiB}} {
		if v[0]%v[1] != 0 {
			c.add(p+".hugePages."+field, "round it up", "%s is no whole number of pages of %s", v[0], v[1])
		}
	}
	const least = 4 * skerry.KiB // one page
	for field, v := range map[string]skerry.Bytes{"readBps": io.ReadBps, "writeBps": io.WriteBps} {
		if v < 0 || v > 0 && v < least {
			c.add(p+".io."+field, "leave it out for no limit", "%s a second is less than one page", v)
		}
	}
	c.between(p+".io.readIops", io.ReadIOPS, 0, 10000000)
	c.between(p+".io.writeIops", io.WriteIOPS, 0, 10000000)
	c.between(p+".io.weight", io.Weight, 0, 10000)
}
