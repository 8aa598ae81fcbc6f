// Package apps turns applications into the instances they want: scale, updates, restarts, jobs, schedules and quotas. It
// is pure, and serves root and cluster alike: the tier above it decides who holds an instance, this package decides which
// instances there should be. Root and cluster cores import it.
//
// A part sees only what it names or embeds, further down or to its right, and never the Controller. Its maps change in one file alone.
//
//	Controller   loads records, takes messages, reconciles: calls the parts in order
//	   |
//	rollouts  jobs  views  demand     services, jobs; what users are shown; how many instances a load asks for
//	editor                            what is asked of applications; agreed with secrets, networks, tenants, history
//	secrets   volumes  mover          versions of secrets; local volumes; moves to other holders
//	networks  certificates  tenants   addresses and exports; organisations, namespaces and quotas
//	lifecycle                         what becomes of an instance
//	   |
//	catalog   ledger, claims  history    applications, instances, who has which volumes, earlier versions
package apps

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Controller holds the applications and instances of one tier. What others may ask and tell is methods of its parts.
type Controller struct {
	*lifecycle
	*tenants
	*certificates
	*networks
	*secrets
	*mover
	*volumes
	*editor
	*demand
	*views
	history  *history
	jobs     *jobs
	rollouts *rollouts
}

// New makes an empty controller. The seed makes instance ids; it must differ at each start of a process. tier is one
// letter that keeps ids minted by different tiers apart.
func New(seed [16]byte, tier string) *Controller {
	applications, instances := newCatalog(), newLedger(seed, tier)
	c := &Controller{lifecycle: &lifecycle{catalog: applications, ledger: instances}}
	c.history = &history{map[skerry.AppKey][]*Past{}, applications.stored, nil}
	instances.claims.stored = applications.stored
	c.tenants = newTenants(applications, instances)
	c.history.full = c.tenants.full
	c.certificates = &certificates{applications, c.tenants, map[certKey]*certificate{}}
	c.networks = newNetworks(applications, instances, c.certificates)
	c.secrets = &secrets{c.lifecycle, c.tenants, c.history, c.networks, map[secretKey]*secret{}}
	c.mover = &mover{c.lifecycle}
	c.volumes = &volumes{c.lifecycle, c.tenants}
	c.editor = &editor{c.lifecycle, c.tenants, c.networks, c.history, c.secrets, c.volumes}
	c.demand = newDemand(c.lifecycle, c.editor)
	c.views = &views{applications, instances, c.history, c.networks, c.demand}
	c.jobs = &jobs{c.lifecycle}
	c.rollouts = &rollouts{c.lifecycle, c.editor, c.history, c.mover}
	return c
}

// Load takes one record of the store; it reports whether the record was one of ours.
func (c *Controller) Load(key string, value []byte) (bool, error) {
	kind, _, _ := strings.Cut(key, "/")
	var err error
	if key == keyNets {
		return true, c.networks.load(key, value)
	}
	switch kind + "/" {
	case prefixNet:
		err = c.networks.load(key, value)
	case prefixCert:
		err = c.certificates.load(value)
	case prefixSecret:
		err = c.secrets.load(value)
	case prefixApp:
		err = read(value, func(a *App) {
			a.Manifest.Spec.Services = slices.Clone(a.Manifest.Spec.Services) // without the room that was left for more: 1.5 KB for each
			c.addApp(a)
			c.count(a, len(value))
			c.Look(a.Key())
		})
	case prefixInst:
		err = takeInstance(c.lifecycle, value)()
	case prefixClaim:
		err = c.loadClaim(value)
	case prefixPast:
		err = c.history.load(value)
	case prefixOrg:
		err = c.loadOrg(value)
	case prefixSpace:
		err = c.loadNamespace(value)
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("record %s: %w", key, err)
	}
	return true, nil
}

// DecodeInstance is Load in two steps (loop.Decode) for the record of an instance; these take most of the time of a start. It gives nil for
// any other record.
func (l *lifecycle) DecodeInstance(key string, value []byte) (take func() error) {
	if !strings.HasPrefix(key, prefixInst) {
		return nil
	}
	instance := takeInstance(l, value)
	return func() error {
		if err := instance(); err != nil {
			return fmt.Errorf("record %s: %w", key, err)
		}
		return nil
	}
}

// takeInstance decodes the record of an instance, and returns what takes it once the applications have been loaded.
func takeInstance(l *lifecycle, value []byte) func() error {
	stored, err := decodeInstance(value)
	return func() error {
		if err != nil {
			return err
		}
		if l.loading == nil {
			l.loading = newSharing(l.catalog).instance
		}
		i, err := l.loading(stored.Instance, stored.Spec, stored.sum)
		if err != nil {
			return err
		}
		i.RetryAt = time.Time{} // the clock may have been wrong then, or may be now
		l.addInstance(i)
		return nil
	}
}

// Audit says what of the parts' state does not balance. It costs as much as there is; tests call it after every step.
func (c *Controller) Audit() []string {
	return slices.Concat(c.lifecycle.ledger.audit(), c.networks.audit(), c.auditStored())
}

// Records are the kinds of records of a controller, by how their keys begin, each with a new value of the type that it is read into.
func Records() map[string]func() any {
	return map[string]func() any{
		keyNets:      func() any { return new(wire.NetworkID) },
		prefixNet:    func() any { return new(network) },
		prefixCert:   func() any { return new(certificate) },
		prefixSecret: func() any { return new(secret) },
		prefixApp:    func() any { return new(App) },
		prefixInst:   func() any { return new(Instance) },
		prefixClaim:  func() any { return new(claim) },
		prefixPast:   func() any { return new(Past) },
		prefixOrg:    func() any { return new(Org) },
		prefixSpace:  func() any { return new(Namespace) },
	}
}
