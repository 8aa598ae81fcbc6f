package apps

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Messages of users, beside Apply. Their results are Applied or nil.
type (
	Deploy struct {
		Key   skerry.AppKey
		Actor string
	}
	Scale struct {
		Service  skerry.ServiceKey
		Replicas int
		Actor    string
	}
	// Restart with an empty service name restarts all services of the application. Pull, if set, is its manifest as it is; what its
	// images mean now, as resolved by the server, are Digests.
	Restart struct {
		Service skerry.ServiceKey
		Actor   string
		Pull    *spec.Application
		Digests map[string]string
	}
	// Undo puts a service, or with an empty name all of an application, back to an earlier version: the last one that
	// differs if To is 0, else that of generation To.
	Undo struct {
		Service skerry.ServiceKey
		To      skerry.Generation
		// Site, instead, names the site whose amendment, kept because it was not adopted, is to be brought back.
		Site  string
		Actor string
	}
	// Pause keeps the rollouts of a service, or with an empty name of all, where they are.
	Pause struct {
		Service skerry.ServiceKey
		Actor   string
	}
	// Resume lets rollouts go on, and has a version tried again that was taken back.
	Resume struct {
		Service skerry.ServiceKey
		Actor   string
	}
	// Delete ends an application -> Deleted. Local volumes that its manifest keeps go with it if Volumes says so.
	Delete struct {
		Key     skerry.AppKey
		Volumes bool
		Actor   string
	}
	// DeleteInstance ends an instance. Its service gets another one, or if Scale says so has one less from then on.
	DeleteInstance struct {
		ID    skerry.InstanceID
		Scale bool
		Actor string
	}
	// DecideOrphan adopts or ends an instance that runs and that the store does not know, or deletes what a worker keeps. Root and cluster
	// answer it themselves.
	DecideOrphan struct {
		Name  string
		Adopt bool
		Actor string
	}
	PutOrg          struct{ Org Org }
	DeleteOrg       struct{ Name string }
	PutNamespace    struct{ Namespace Namespace }
	DeleteNamespace struct{ Name string }
	// PutCertificate keeps a certificate with its key for ingresses of an organisation, in place of one of the same name.
	PutCertificate struct {
		Org, Name, Actor string
		CertPEM, KeyPEM  []byte
	}
	DeleteCertificate struct{ Org, Name string }
)

// Handle carries out a user's message. It reports false for a message that is none.
func (c *Controller) Handle(now time.Time, msg any) (wire.Effects, bool) {
	var res any
	var fx wire.Effects
	var err error
	switch m := msg.(type) {
	case Apply:
		res, fx, err = c.apply(now, m)
	case Deploy:
		res, fx, err = c.deploy(now, m.Key, m.Actor)
	case Scale:
		res, fx, err = c.scale(now, m.Service, m.Replicas, m.Actor)
	case Restart:
		res, fx, err = c.restart(now, m)
	case Undo:
		res, fx, err = c.editor.undo(now, m.Service, m.To, m.Site, m.Actor)
	case Pause:
		res, fx, err = c.pause(now, m.Service, true, m.Actor)
	case Resume:
		res, fx, err = c.pause(now, m.Service, false, m.Actor)
	case Delete:
		res, fx, err = c.editor.delete(now, m)
	case DeleteVolume:
		fx, err = c.volumes.delete(now, m)
	case DeleteInstance:
		if m.Scale {
			fx, err = c.editor.scaleAway(now, m.ID, m.Actor)
		} else {
			fx, err = c.deleteInstance(now, m.ID, m.Actor)
		}
	case PutOrg:
		fx, err = c.putOrg(m.Org)
	case DeleteOrg:
		fx, err = c.deleteOrg(m.Name)
	case PutNamespace:
		fx, err = c.putNamespace(m.Namespace)
	case DeleteNamespace:
		fx, err = c.deleteNamespace(m.Name, c.secrets.anyOf(m.Name))
	case PutCertificate:
		if res, fx, err = c.certificates.put(now, m); err == nil {
			c.recertify(certKey{m.Org, m.Name})
		}
	case DeleteCertificate:
		fx, err = c.certificates.delete(m)
	case PutSecret:
		res, fx, err = c.secrets.put(now, m)
	case UndoSecret:
		res, fx, err = c.secrets.undo(now, m)
	case DeleteSecret:
		fx, err = c.secrets.delete(m)
	default:
		return fx, false
	}
	fx.Result, fx.Err = res, err
	return fx, true
}
