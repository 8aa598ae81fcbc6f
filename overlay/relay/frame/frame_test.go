package frame

import (
	"bytes"
	"net/netip"
	"testing"
)

func TestRegister(t *testing.T) {
	key := [32]byte{1}
	for _, r := range []Register{
		{Peer: 5, Nonce: 7},
		{Peer: 5, Nonce: 7, Cookie: [16]byte{1, 2}, Answer: true, Done: true, Addr: netip.MustParseAddrPort("192.0.2.1:9")},
		{Peer: 5, Answer: true, Addr: netip.MustParseAddrPort("[2001:db8::1]:9")},
		{Relay: true, Peer: RelayTag("harbour"), Nonce: 7},
		{Relay: true, Peer: RelayTag("harbour"), Answer: true, Done: true, Nonce: 7},
	} {
		b := r.Append(nil, key)
		got, ok := ParseRegister(b)
		if !ok || got != r || len(b) != RegisterLen || !CheckRegister(b, key) || CheckRegister(b, [32]byte{2}) {
			t.Errorf("%v %+v, not %+v", ok, got, r)
		}
		for i := range b {
			bad := bytes.Clone(b)
			bad[i] ^= 1
			if CheckRegister(bad, key) {
				t.Errorf("byte %d may be changed", i)
			}
		}
	}
	if RelayKey(key, "a") == RelayKey(key, "b") || RelayKey(key, "a") == key || RelayTag("a") == RelayTag("b") {
		t.Error("what one relay asks is a question of another one")
	}
}

func TestData(t *testing.T) {
	key := [32]byte{1}
	up, down := NewTagger(key, true), NewTagger(key, false)
	var s Scratch
	b := append(make([]byte, DataLen), "eleven bytes and more"...)
	up.Put(b, 3, 8, 9, &s)
	hops, dst, src, ok := Parse(b)
	if !ok || hops != 3 || dst != 8 || src != 9 || !up.Check(b, &s) || down.Check(b, &s) {
		t.Errorf("%v: %d %d %d", ok, hops, dst, src)
	}
	for _, i := range []int{2, 7, 8, 15, DataLen + 3, DataLen + 10} { // the tag, both IDs, index and counter
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if up.Check(bad, &s) {
			t.Errorf("byte %d may be changed", i)
		}
	}
	if NewRelayTagger(key, "a").Check(b, &s) {
		t.Error("a relay's tag is a worker's")
	}
}

func FuzzParse(f *testing.F) {
	b := append(make([]byte, DataLen), "eleven bytes and more"...)
	up := NewTagger([32]byte{1}, true)
	up.Put(b, 0, 1, 2, &Scratch{})
	f.Add(b)
	f.Add(Register{Peer: 1, Nonce: 2}.Append(nil, [32]byte{1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, _, ok := Parse(b); ok {
			up.Check(b, &Scratch{})
		}
		if r, ok := ParseRegister(b); ok {
			if again, ok := ParseRegister(r.Append(nil, [32]byte{1})); !ok || again != r {
				t.Fatalf("%+v became %+v", r, again)
			}
		}
		CheckRegister(b, [32]byte{1})
		if len(b) >= StreamLen {
			if n, ok := Length(b); ok && n < DataLen+MinPayload {
				t.Fatal(n)
			}
		}
	})
}
