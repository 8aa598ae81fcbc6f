package wire

import (
	"crypto/hmac"
	"crypto/sha256"

	"skerry.dev/skerry/spec"
)

// Seal gives what shows later that who has the key gave an assignment to a child: what a child holds is taken up only
// with that, for it may be placed elsewhere then. It is nil for what is no assignment.
func (c *Codec) Seal(key []byte, child string, value []byte) []byte {
	var a spec.Assignment
	if c.Unmarshal(value, &a) != nil {
		return nil
	}
	a.Seal = nil
	return c.seal(key, child, &a)
}

// SealOwn is Seal for an assignment without a seal as Marshal gave it, which needs no reading: what is read and written again is the same.
func (c *Codec) SealOwn(key []byte, child string, value []byte) []byte { return mac(key, child, value) }

// Sealed reports whether an assignment that a child holds has the seal of who has the key.
func (c *Codec) Sealed(key []byte, child string, value []byte) bool {
	var a spec.Assignment
	return len(key) > 0 && c.Unmarshal(value, &a) == nil && len(a.Seal) > 0 && hmac.Equal(a.Seal, c.Seal(key, child, value))
}

// SealVolumes gives the same of volumes that a child is to keep, and SealedVolumes reports whether what it holds of them has that seal.
func (c *Codec) SealVolumes(key []byte, child string, k spec.KeptVolumes) []byte {
	k.Seal = nil
	return c.seal(key, "volumes/"+child, &k)
}

// SealedVolumes reads what a child holds of volumes that it keeps. It reports false unless it has the seal of who has the key.
func (c *Codec) SealedVolumes(key []byte, child string, value []byte) (k spec.KeptVolumes, ok bool) {
	err := c.Unmarshal(value, &k)
	return k, err == nil && len(key) > 0 && len(k.Seal) > 0 && hmac.Equal(k.Seal, c.SealVolumes(key, child, k))
}

// SealSnapshot gives the same of a snapshot that a child is to keep.
func (c *Codec) SealSnapshot(key []byte, child string, k spec.KeptSnapshot) []byte {
	k.Seal = nil
	return c.seal(key, "snapshot/"+child, &k)
}

// SealedSnapshot reads what a child holds of a snapshot that it keeps. It reports false unless it has the seal of who has the key.
func (c *Codec) SealedSnapshot(key []byte, child string, value []byte) (k spec.KeptSnapshot, ok bool) {
	err := c.Unmarshal(value, &k)
	return k, err == nil && len(key) > 0 && len(k.Seal) > 0 && hmac.Equal(k.Seal, c.SealSnapshot(key, child, k))
}

func (c *Codec) seal(key []byte, child string, v any) []byte { return mac(key, child, c.Marshal(v)) }

func mac(key []byte, child string, value []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(child + "/"))
	mac.Write(value)
	return mac.Sum(nil)
}
