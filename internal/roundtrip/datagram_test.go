package roundtrip

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"skerry.dev/skerry/spec"
)

var (
	keyA = bytes.Repeat([]byte{1}, 32)
	keyB = bytes.Repeat([]byte{2}, 32)
)

func TestDatagram(t *testing.T) {
	if spec.CoordinateDims != 3 {
		t.Fatal("the datagram has room for three dimensions")
	}
	d := datagram{kind: answer, keyID: 7, nonce: 0x0102030405060708, at: spec.Coordinate{Vec: [3]float64{1.5, -2, 300}, Height: 0.25, Error: 0.5}}
	b := d.append(nil, keyA)
	if len(b) != datagramSize {
		t.Fatalf("%d bytes", len(b))
	}
	if got, err := parseDatagram(b, 7, keyA); err != nil || got != d {
		t.Errorf("%+v %v", got, err)
	}
	q := datagram{kind: question, keyID: 7, nonce: 1}
	if len(q.append(nil, keyA)) < len(b) {
		t.Error("the answer is longer than the question")
	}
	for name, c := range map[string]struct {
		b   []byte
		id  uint16
		key []byte
		err error
	}{
		"other key":    {b, 7, keyB, errForged},
		"old key":      {b, 8, keyA, errForged},
		"no key":       {b, 7, nil, errForged},
		"truncated":    {b[:datagramSize-1], 7, keyA, errNotOurs},
		"longer":       {append(bytes.Clone(b), 0), 7, keyA, errNotOurs},
		"empty":        {nil, 7, keyA, errNotOurs},
		"sent back":    {flip(b, 1, answer^question), 7, keyA, errForged},
		"other kind":   {flip(b, 1, 8), 7, keyA, errNotOurs},
		"other nonce":  {flip(b, 11, 1), 7, keyA, errForged},
		"other place":  {flip(b, 15, 1), 7, keyA, errForged},
		"other tag":    {flip(b, 43, 1), 7, keyA, errForged},
		"new version":  {flip(b, 1, 0x30), 7, keyA, errNotOurs},
		"not Skerry's": {flip(b, 0, 1), 7, keyA, errNotOurs},
	} {
		if _, err := parseDatagram(c.b, c.id, c.key); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func flip(b []byte, i int, bits byte) []byte {
	b = bytes.Clone(b)
	b[i] ^= bits
	return b
}

func FuzzParseDatagram(f *testing.F) {
	q := datagram{kind: question, keyID: 7, nonce: 1}
	f.Add(q.append(nil, keyA))
	a := datagram{kind: answer, keyID: 7, nonce: 1, at: spec.Coordinate{Vec: [3]float64{math.NaN(), math.Inf(1), -1e30}, Height: -1, Error: math.Inf(-1)}}
	f.Add(a.append(nil, keyA))
	f.Add([]byte("S"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDatagram(b, 7, keyA)
		if err != nil {
			return
		}
		// What is accepted is what was signed, bit by bit, unless a number is none.
		if again := d.append(nil, keyA); !bytes.Equal(again, b) && d.at.Valid() {
			t.Errorf("%x reads as %+v, written %x", b, d, again)
		}
	})
}
