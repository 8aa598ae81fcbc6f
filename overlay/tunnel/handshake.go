package tunnel

import (
	"crypto/ecdh"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flynn/noise"

	"skerry.dev/skerry/wire"
)

const (
	prologue = "skerry overlay 1"

	hsHeader   = 8 // type 1, zero 3, sender's index 4
	hsPayload  = 16
	macLen     = 16
	initLen    = hsHeader + 32 + 48 + hsPayload + 16 + 2*macLen
	respHeader = 12 // and the receiver's index
	respLen    = respHeader + 32 + hsPayload + 16 + 2*macLen
)

// abilityAES says that AES-GCM runs on instructions made for it.
const abilityAES = 1

var errHandshake = errors.New("handshake refused")

// identity is this end's static key.
type identity struct {
	key    noise.DHKey
	public wire.OverlayKey
}

func newIdentity(private [32]byte) (identity, error) {
	k, err := ecdh.X25519().NewPrivateKey(private[:])
	if err != nil {
		return identity{}, fmt.Errorf("private key: %w", err)
	}
	pub := k.PublicKey().Bytes()
	return identity{noise.DHKey{Private: private[:], Public: pub}, wire.OverlayKey(pub)}, nil
}

func (id identity) noise(initiator bool, peer []byte) (*noise.HandshakeState, error) {
	return noise.NewHandshakeState(noise.Config{
		CipherSuite:   noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashBLAKE2s),
		Pattern:       noise.HandshakeIK,
		Initiator:     initiator,
		Prologue:      []byte(prologue),
		StaticKeypair: id.key,
		PeerStatic:    peer,
	})
}

// attempt is a handshake that this end began.
type attempt struct {
	local uint32
	state *noise.HandshakeState
	mac1  [macLen]byte // of what was sent: a cookie names it
}

// offer is what is in an initiation.
type offer struct {
	remote uint32
	peer   wire.OverlayKey
	stamp  uint64 // grows from one initiation of a peer to the next, unless its clock was set back
	aes    bool
	state  *noise.HandshakeState
}

func putPayload(stamp uint64, aes bool, s suite) []byte {
	var p [hsPayload]byte
	p[0] = 1 // version
	if aes {
		p[1] = abilityAES
	}
	p[2] = byte(s)
	binary.BigEndian.PutUint64(p[8:], stamp)
	return p[:]
}

// initiate makes an initiation, without its macs.
func (id identity) initiate(peer wire.OverlayKey, local uint32, stamp uint64, aes bool) ([]byte, *attempt, error) {
	hs, err := id.noise(true, peer[:])
	if err != nil {
		return nil, nil, err
	}
	b := make([]byte, hsHeader, initLen)
	b[0] = typeInit
	binary.BigEndian.PutUint32(b[4:], local)
	b, _, _, err = hs.WriteMessage(b, putPayload(stamp, aes, 0))
	if err != nil {
		return nil, nil, err
	}
	return b, &attempt{local: local, state: hs}, nil
}

// receive opens an initiation. Whose it is stands in the answer; whether that is a peer is for the caller to say.
func (id identity) receive(b []byte) (o offer, err error) {
	if len(b) != initLen {
		return o, errMalformed
	}
	hs, err := id.noise(false, nil)
	if err != nil {
		return o, err
	}
	p, _, _, err := hs.ReadMessage(nil, b[hsHeader:initLen-2*macLen])
	if err != nil || len(p) != hsPayload || len(hs.PeerStatic()) != 32 {
		return o, errHandshake
	}
	return offer{binary.BigEndian.Uint32(b[4:]), wire.OverlayKey(hs.PeerStatic()), binary.BigEndian.Uint64(p[8:]), p[1]&abilityAES != 0, hs},
		nil
}

// respond answers an initiation and gives the session, which must not send before it is confirmed.
func (o offer) respond(local uint32, aes bool) ([]byte, *session, error) {
	s := choose(aes, o.aes)
	b := make([]byte, respHeader, respLen)
	b[0] = typeResponse
	binary.BigEndian.PutUint32(b[4:], local)
	binary.BigEndian.PutUint32(b[8:], o.remote)
	b, theirs, ours, err := o.state.WriteMessage(b, putPayload(0, aes, s))
	if err != nil {
		return nil, nil, err
	}
	sess, err := newSession(s, ours.UnsafeKey(), theirs.UnsafeKey())
	if err != nil {
		return nil, nil, err
	}
	sess.local, sess.remote = local, o.remote
	return b, sess, nil
}

// finish takes the answer to an attempt.
func (a *attempt) finish(b []byte, aes bool) (*session, error) {
	if len(b) != respLen {
		return nil, errMalformed
	}
	p, ours, theirs, err := a.state.ReadMessage(nil, b[respHeader:respLen-2*macLen])
	if err != nil || len(p) != hsPayload {
		return nil, errHandshake
	}
	// Both ends choose by the same rule; an answer that says otherwise comes from something else.
	if suite(p[2]) != choose(aes, p[1]&abilityAES != 0) {
		return nil, errHandshake
	}
	sess, err := newSession(suite(p[2]), ours.UnsafeKey(), theirs.UnsafeKey())
	if err != nil {
		return nil, err
	}
	sess.local, sess.remote, sess.initiator = a.local, binary.BigEndian.Uint32(b[4:]), true
	sess.confirmed.Store(true)
	return sess, nil
}
