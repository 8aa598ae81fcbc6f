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

// instance reads the record of an instance.
func (sh *sharing) instance(value []byte) (*Instance, error) {
	var stored struct {
		*Instance
		Spec json.RawMessage `json:"spec"` // instead of the instance's
	}
	stored.Instance = &Instance{}
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, err
	}
	i := stored.Instance
	var err error
	if i.Spec, err = sh.spec(i, stored.Spec); err != nil {
		return nil, err
	}
	if s := i.Spec; s != nil && i.Resources != nil && *i.Resources == s.Resources {
		i.Resources = &s.Resources
	}
	shareText(sh, &i.Service.App.Namespace, &i.Service.App.Name, &i.Service.Service, &i.Org, &i.Revision, &i.Reason, &i.Runtime, &i.Holder,
		&i.Target, &i.Digest, &i.Monitor)
	shareText(sh, &i.State)
	shareText(sh, &i.Phase)
	shareText(sh, &i.Cluster)
	for n := range i.Conditions {
		shareText(sh, &i.Conditions[n].Type)
		shareText(sh, &i.Conditions[n].Reason)
	}
	for n := range i.Timeline {
		step := &i.Timeline[n]
		shareText(sh, &step.State)
		shareText(sh, &step.Phase)
		shareText(sh, &step.Text)
	}
	if d := i.Decision; d != nil {
		shareText(sh, &d.Tier, &d.Policy, &d.Chosen)
		if d.Instance == i.ID {
			d.Instance = i.ID
		}
		d.Top = slices.Clone(d.Top) // without the room that was left for more
		for n := range d.Top {
			shareText(sh, &d.Top[n].Name)
		}
	}
	return i, nil
}

// spec gives the specification of an instance: its application's, if that is the same, or one that another instance has, too.
func (sh *sharing) spec(i *Instance, stored json.RawMessage) (*spec.ServiceSpec, error) {
	sum := sha256.Sum256(stored)
	if a := sh.catalog.apps[i.Service.App]; a != nil {
		if s := a.Manifest.Spec.Service(i.Service.Service); s != nil {
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
