//go:build linux

// Package owners changes whom files belong to, where the kernel or a file system cannot map that for a user namespace: in a copy of a tree,
// or in the tree itself, which can be taken back. Set-user-ID bits, capabilities, access lists, hard links and times stay what they are.
// Image stores and the worker import it. It follows no link, and leaves the tree nowhere.
package owners

import (
	"encoding/binary"
	"slices"
)

// Size is how many users, and groups, a range has.
const Size = 1 << 16

// nobody has, in a copy, what belongs to a user that a range has not.
const nobody = Size - 2

// Map exchanges numbers of users and groups. A file of the range from 0 on has the numbers that users have inside of a namespace.
type Map struct {
	From []uint32 // the first of each range that files may have beside 0 and To
	To   uint32   // the first of the range that they are to have
}

// ID gives the number in place of another one. Those of no range of the map stay what they are, as do those that are right already: what
// was begun can be done again.
func (m Map) ID(id uint32) uint32 {
	if id-m.To < Size {
		return id
	}
	for _, first := range m.From {
		if id-first < Size {
			return m.To + (id - first)
		}
	}
	if id < Size {
		return m.To + id
	}
	return id
}

// copied gives the number that a copy for the range from first on has in place of an image's own, and whether the range has it.
func copied(first uint32) func(id uint32) (uint32, bool) {
	return func(id uint32) (uint32, bool) {
		if id >= Size {
			return first + nobody, false
		}
		return first + id, true
	}
}

// Names of attributes in which users stand.
const (
	capsAttr    = "security.capability"
	accessAttr  = "system.posix_acl_access"
	defaultAttr = "system.posix_acl_default"
)

// The kernel's forms of capabilities of a file (linux/capability.h): the third names the root of the namespace for which they count.
const (
	capsVersion = 0xff00_0000
	caps2       = 0x0200_0000
	caps3       = 0x0300_0000
	caps2Len    = 20
	caps3Len    = 24
)

// fileCaps gives the capabilities of a file for another root, nil where they are of no known form or for a root that is none any more.
func fileCaps(value []byte, id func(uint32) (uint32, bool)) []byte {
	if len(value) < caps2Len {
		return nil
	}
	magic, root := binary.LittleEndian.Uint32(value), uint32(0)
	switch version := magic & capsVersion; {
	case version == caps2 && len(value) == caps2Len:
	case version == caps3 && len(value) == caps3Len:
		root = binary.LittleEndian.Uint32(value[caps2Len:])
	default:
		return nil
	}
	root, ok := id(root)
	if !ok {
		return nil
	}
	out := slices.Clone(value[:caps2Len])
	if root == 0 {
		binary.LittleEndian.PutUint32(out, magic&^capsVersion|caps2)
		return out
	}
	binary.LittleEndian.PutUint32(out, magic&^capsVersion|caps3)
	return binary.LittleEndian.AppendUint32(out, root)
}

// An access list is a version and entries of a tag, rights and, for these tags, a user or group (linux/posix_acl_xattr.h).
const (
	aclHead  = 4
	aclEntry = 8
	aclUser  = 0x02
	aclGroup = 0x08
)

// accessList gives an access list for other users; entries of users that there are none of go.
func accessList(value []byte, id func(uint32) (uint32, bool)) []byte {
	if len(value) < aclHead || (len(value)-aclHead)%aclEntry != 0 {
		return nil
	}
	out := slices.Clone(value[:aclHead])
	for e := range slices.Chunk(value[aclHead:], aclEntry) {
		tag, who := binary.LittleEndian.Uint16(e), binary.LittleEndian.Uint32(e[4:])
		if tag == aclUser || tag == aclGroup {
			to, ok := id(who)
			if !ok {
				continue
			}
			out = binary.LittleEndian.AppendUint32(append(out, e[:4]...), to)
			continue
		}
		out = append(out, e...)
	}
	return out
}
