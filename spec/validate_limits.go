package spec

import (
	"skerry.dev/skerry"
)

// limits checks what a container may use beyond what it asks for, and how fast it may read and write.
func (c *checker) limits(path string, want Resources) {
	l, io := want.Limits, want.IO
	c.amount(path+".limits.memory", l.Memory)
	switch {
	case l.CPU < 0 || l.CPU > 0 && l.CPU < want.CPU:
		c.add(path+".limits.cpu", "raise the limit, or ask for less", "%s is less than the %s that it asks for", l.CPU, want.CPU)
	case l.CPU > 0 && want.ExclusiveCPUs > 0:
		c.add(path+".limits.cpu", "leave it out", "its own processors are all that it has")
	}
	if l.Memory < 0 || l.Memory > 0 && l.Memory < max(want.Memory, 4*skerry.MiB) {
		c.add(path+".limits.memory", "raise the limit, or ask for less", "%s is less than the %s that it needs", l.Memory,
			max(want.Memory, 4*skerry.MiB))
	}
	for field, v := range map[string][2]skerry.Bytes{"2Mi": {want.HugePages.Size2Mi, 2 * skerry.MiB},
		"1Gi": {want.HugePages.Size1Gi, skerry.GiB}} {
		if v[0]%v[1] != 0 {
			c.add(path+".hugePages."+field, "round it up", "%s is no whole number of pages of %s", v[0], v[1])
		}
	}
	const least = 4 * skerry.KiB // one page
	for field, v := range map[string]skerry.Bytes{"readBps": io.ReadBps, "writeBps": io.WriteBps} {
		if v < 0 || v > 0 && v < least {
			c.add(path+".io."+field, "leave it out for no limit", "%s a second is less than one page", v)
		}
	}
	c.between(path+".io.readIops", io.ReadIOPS, 0, 10000000)
	c.between(path+".io.writeIops", io.WriteIOPS, 0, 10000000)
	c.between(path+".io.weight", io.Weight, 0, 10000)
}
