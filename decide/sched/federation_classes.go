package sched

import (
	"strings"

	"skerry.dev/skerry/wire"
)

// classTable numbers the classes of workers that any site has.
type classTable struct {
	classes []wire.Class // each once
	classID map[string]int32
	keys    []string // in classID, of each of classes
	uses    []int32  // sites that have each of them
	free    []int32  // classes that none has
}

// class gives the number of a class, for one more site that has it.
func (t *classTable) class(k wire.Class) int32 {
	key := k.Arch + "\x00" + strings.Join(k.Runtimes, "\x01") + "\x00" + strings.Join(k.Devices, "\x01")
	if k.Egress {
		key += "\x00egress"
	}
	if len(k.Features) > 0 {
		key += "\x00" + strings.Join(k.Features, "\x01")
	}
	id, ok := t.classID[key]
	if last := len(t.free) - 1; !ok && last >= 0 {
		id, t.free = t.free[last], t.free[:last]
		t.classes[id], t.keys[id], t.classID[key] = k, key, id
	} else if !ok {
		id = int32(len(t.classes))
		t.classes, t.keys, t.uses = append(t.classes, k), append(t.keys, key), append(t.uses, 0)
		t.classID[key] = id
	}
	t.uses[id]++
	return id
}

// drop forgets a class that a site had, unless another has it.
func (t *classTable) drop(id int32) {
	if t.uses[id]--; t.uses[id] == 0 {
		delete(t.classID, t.keys[id])
		t.classes[id], t.keys[id] = wire.Class{}, ""
		t.free = append(t.free, id)
	}
}

// Classes counts the classes that are remembered.
func (t *classTable) Classes() int { return len(t.classID) }
