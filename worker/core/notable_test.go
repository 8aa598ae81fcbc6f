package core

import (
	"testing"

	"skerry.dev/skerry/wire"
)

func TestArrivalsMoved(t *testing.T) {
	for _, x := range []struct {
		a, b  wire.IngressUse
		moved bool
	}{{wire.IngressUse{Requests: 10}, wire.IngressUse{Requests: 11}, false}, {wire.IngressUse{Requests: 10}, wire.IngressUse{Requests: 14}, true}, {wire.IngressUse{}, wire.IngressUse{Active: 1}, true}} {
		if arrivalsMoved([]wire.IngressUse{x.a}, []wire.IngressUse{x.b}) != x.moved {
			t.Errorf("%+v", x)
		}
	}
}
