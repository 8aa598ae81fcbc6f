package loop

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"reflect"
	"slices"
	"time"
)

type digest [sha256.Size]byte

// Limits of what is looked at; what lies beyond them does not tell one message from another.
const (
	digestDepth  = 64
	digestValues = 1 << 20
)

// digestOf gives a digest of a message's type and all that it holds, unexported fields too. Functions and channels do not count, and
// pointers count for what they point to.
func digestOf(msg any) (d digest) {
	g := &digester{Hash: sha256.New(), left: digestValues}
	g.value(reflect.ValueOf(&msg).Elem(), 0)
	g.Sum(d[:0])
	return d
}

type digester struct {
	hash.Hash
	left int // values
}

func (g *digester) number(n uint64) { g.Write(binary.LittleEndian.AppendUint64(nil, n)) }

func (g *digester) value(v reflect.Value, depth int) {
	if g.left--; !v.IsValid() || depth > digestDepth || g.left < 0 {
		g.Write([]byte{0})
		return
	}
	g.Write([]byte{byte(v.Kind())})
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			g.Write([]byte{1})
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		g.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		g.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		g.number(math.Float64bits(v.Float()))
	case reflect.String:
		g.number(uint64(v.Len()))
		g.Write([]byte(v.String()))
	case reflect.Interface:
		if v = v.Elem(); v.IsValid() {
			g.Write([]byte(v.Type().String()))
		}
		g.value(v, depth+1)
	case reflect.Pointer:
		g.value(v.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		g.number(uint64(v.Len()))
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			g.Write(v.Bytes())
			return
		}
		for i := range v.Len() {
			g.value(v.Index(i), depth+1)
		}
	case reflect.Map:
		g.pairs(v, depth)
	case reflect.Struct:
		n := v.NumField()
		if v.Type() == reflect.TypeFor[time.Time]() {
			n = 2 // the moment, without the zone
		}
		for i := range n {
			g.value(v.Field(i), depth+1)
		}
	}
}

// pairs sorts the digests of what a map has, which comes in any order.
func (g *digester) pairs(v reflect.Value, depth int) {
	g.number(uint64(v.Len()))
	var list [][]byte
	for it := v.MapRange(); it.Next(); {
		pair := &digester{Hash: sha256.New(), left: g.left}
		pair.value(it.Key(), depth+1)
		pair.value(it.Value(), depth+1)
		list, g.left = append(list, pair.Sum(nil)), pair.left
	}
	slices.SortFunc(list, slices.Compare)
	for _, p := range list {
		g.Write(p)
	}
}
