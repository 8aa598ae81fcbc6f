package apps

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"skerry.dev/skerry/spec"
)

// sharing has instances that are read from records share what is the same for many, as those do that are made: a specification, which
// nobody changes in place, and short texts. Decoded anew for each, that would be most of the memory and of the time of a start. It is
// dropped when loading has ended.
type sharing struct {
	catalog   *catalog
	manifests map[*spec.ServiceSpec][sha256.Size]byte // of services of applications, by the digest of their stored form
	specs     map[[sha256.Size]byte]*spec.ServiceSpec // other versions
	texts     map[string]string
}

func newSharing(c *catalog) *sharing {
	return &sharing{c, map[*spec.ServiceSpec][sha256.Size]byte{}, map[[sha256.Size]byte]*spec.ServiceSpec{}, map[string]string{}}
}

// storedInstance is the record of an instance, with its specification as it stands there.
type storedInstance struct {
	*Instance
	Spec json.RawMessage `json:"spec"` // instead of the instance's
	sum  [sha256.Size]byte
}

func decodeInstance(value []byte) (stored *storedInstance, err error) {
	stored = &storedInstance{Instance: &Instance{}}
	if err := json.Unmarshal(value, stored); err != nil {
		return nil, err
	}
	stored.sum = sha256.Sum256(stored.Spec)
	return stored, nil
}

// instance has an instance share what others have, too.
func (sh *sharing) instance(inst *Instance, service json.RawMessage, digest [sha256.Size]byte) (*Instance, error) {
	var err error
	if inst.Spec, err = sh.spec(inst, service, digest); err != nil {
		return nil, err
	}
	if s := inst.Spec; s != nil && inst.Resources != nil && *inst.Resources == s.Resources {
		inst.Resources = &s.Resources
	}
	shareText(sh, &inst.Service.App.Namespace, &inst.Service.App.Name, &inst.Service.Service, &inst.Org, &inst.Revision, &inst.Reason,
		&inst.Runtime, &inst.Holder, &inst.Target, &inst.Digest, &inst.Monitor)
	shareText(sh, &inst.State)
	shareText(sh, &inst.Phase)
	shareText(sh, &inst.Cluster)
	for n := range inst.Conditions {
		shareText(sh, &inst.Conditions[n].Type)
		shareText(sh, &inst.Conditions[n].Reason)
	}
	for n := range inst.Timeline {
		step := &inst.Timeline[n]
		shareText(sh, &step.State)
		shareText(sh, &step.Phase)
		shareText(sh, &step.Text)
	}
	if d := inst.Decision; d != nil {
		shareText(sh, &d.Tier, &d.Policy, &d.Chosen)
		if d.Instance == inst.ID {
			d.Instance = inst.ID
		}
		d.Top = slices.Clone(d.Top) // without the room that was left for more
		for n := range d.Top {
			shareText(sh, &d.Top[n].Name)
		}
	}
	return inst, nil
}

// spec gives the specification of an instance: its application's, if that is the same, or one that another instance has, too.
func (sh *sharing) spec(inst *Instance, stored json.RawMessage, sum [sha256.Size]byte) (*spec.ServiceSpec, error) {
	if a := sh.catalog.apps[inst.Service.App]; a != nil {
		if s := a.Manifest.Spec.Service(inst.Service.Service); s != nil {
			own, known := sh.manifests[s]
			if !known {
				own = sha256.Sum256(mustJSON(s))
				sh.manifests[s] = own
			}
			if own == sum {
				return s, nil
			}
		}
	}
	if s, known := sh.specs[sum]; known {
		return s, nil
	}
	var s *spec.ServiceSpec
	if len(stored) > 0 {
		if err := json.Unmarshal(stored, &s); err != nil {
			return nil, err
		}
	}
	sh.specs[sum] = s
	return s, nil
}

// shareText has texts be those of others that are the same.
func shareText[T ~string](sh *sharing, texts ...*T) {
	for _, text := range texts {
		if *text == "" {
			continue
		}
		one, known := sh.texts[string(*text)]
		if !known {
			one = string(*text)
			sh.texts[one] = one
		}
		*text = T(one)
	}
}
