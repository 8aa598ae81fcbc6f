package oakestra

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// service is one as Oakestra shows it. Several names mean the same: the lists and the service alone differ in them there.
type service struct {
	Key            objectID   `json:"_id"`
	ID             string     `json:"microserviceID"`
	Name           string     `json:"microservice_name"`
	Namespace      string     `json:"microservice_namespace"`
	App            string     `json:"applicationID"`
	AppName        string     `json:"application_name"`
	AppNamespace   string     `json:"application_namespace"`
	AppNameAlone   string     `json:"app_name"`
	NamespaceAlone string     `json:"app_ns"`
	JobName        string     `json:"job_name"`
	Image          string     `json:"image"`
	Code           string     `json:"code"`
	OneShot        bool       `json:"one_shot"`
	Status         string     `json:"status,omitempty"` // none without an instance
	StatusDetail   string     `json:"status_detail,omitempty"`
	Instances      []instance `json:"instance_list"`
	*descriptor               // nil: the list of all services has none
}

// descriptor is what a service's SLA asks for.
type descriptor struct {
	Virtualization string   `json:"virtualization"`
	Memory         int64    `json:"memory"` // MB, rounded up
	CPUs           int64    `json:"vcpus"`  // whole ones, rounded up
	GPUs           int      `json:"vgpus"`
	TPUs           int      `json:"vtpus"`
	Port           string   `json:"port"`
	Command        []string `json:"cmd"`
	Args           []string `json:"args"`
	Environment    []string `json:"environment"`
	RoundRobin     string   `json:"RR_ip,omitempty"`
}

func describe(s *spec.ServiceSpec) *descriptor {
	d := &descriptor{Virtualization: "docker", Memory: roundUp(int64(s.Resources.Memory), int64(skerry.MiB)),
		CPUs: roundUp(int64(s.Resources.CPU), 1000), GPUs: s.Resources.GPUs, TPUs: s.Resources.TPUs, Port: ports(s.Ports),
		Command: append([]string{}, s.Command...), Args: append([]string{}, s.Args...), Environment: []string{}}
	switch s.Runtime {
	case spec.RuntimeUnikernel, spec.RuntimeVM:
		d.Virtualization = s.Runtime
	}
	for name, value := range s.Env {
		d.Environment = append(d.Environment, name+"="+value)
	}
	slices.Sort(d.Environment)
	if s.Addresses != nil && s.Addresses.RoundRobin.IsValid() {
		d.RoundRobin = s.Addresses.RoundRobin.String()
	}
	return d
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit }

// ports writes ports as an SLA has them, such as 8080:80/tcp;53:53/udp.
func ports(list []spec.Port) string {
	var out []string
	for _, p := range list {
		text := fmt.Sprint(p.Port)
		if p.HostPort > 0 {
			text = fmt.Sprintf("%d:%d", p.HostPort, p.Port)
		}
		if p.Protocol != "" {
			text += "/" + p.Protocol
		}
		out = append(out, text)
	}
	return strings.Join(out, ";")
}

func showService(app *view.AppView, from *view.ServiceView, list []wire.Instance) service {
	key := skerry.ServiceKey{App: app.Key, Service: from.Name}
	out := service{Key: objectID{serviceID(app, from.Name)}, ID: serviceID(app, from.Name), Name: from.Name, Namespace: app.Key.Namespace,
		App: appID(app), AppName: app.Key.Name, AppNamespace: app.Key.Namespace, AppNameAlone: app.Key.Name, NamespaceAlone: app.Key.Namespace,
		JobName: strings.Join([]string{app.Key.Name, app.Key.Namespace, from.Name, app.Key.Namespace}, "."), Image: from.Image, Code: from.Image,
		OneShot: from.Mode == spec.ModeJob, Instances: []instance{}}
	if app.Manifest != nil {
		if described := app.Manifest.Spec.Service(from.Name); described != nil {
			out.descriptor = describe(described)
		}
	}
	for i := range list {
		if list[i].Service == key && !list[i].Stopping {
			out.Instances = append(out.Instances, showInstance(&list[i]))
		}
	}
	for _, i := range out.Instances { // the service is where the least of its instances is
		if out.Status == "" || slices.Index(statuses, i.Status) < slices.Index(statuses, out.Status) {
			out.Status, out.StatusDetail = i.Status, i.Detail
		}
	}
	return out
}

// instances lists those of an application, or all that the user may see.
func (c *call) instances(key skerry.AppKey) ([]wire.Instance, error) {
	path := "/v1/instances"
	if key.Name != "" {
		path += "?" + url.Values{"namespace": {key.Namespace}, "app": {key.Name}}.Encode()
	}
	list, err := send[api.List[wire.Instance]](c, http.MethodGet, path, nil)
	return list.Items, err
}

func (c *call) listServices() (any, error) {
	list, err := c.apps()
	if err != nil {
		return nil, err
	}
	running, err := c.instances(skerry.AppKey{})
	if err != nil {
		return nil, err
	}
	out := []service{}
	for i := range list {
		for j := range list[i].Services {
			out = append(out, showService(&list[i], &list[i].Services[j], running))
		}
	}
	return out, nil
}

func (c *call) listServicesOf() (any, error) {
	key, err := c.find()
	if err != nil {
		return nil, err
	}
	a, err := c.app(key)
	if err != nil {
		return nil, err
	}
	running, err := c.instances(key)
	out := []service{}
	for i := range a.Services {
		out = append(out, showService(&a, &a.Services[i], running))
	}
	return out, err
}

// findService gives the service whose ID is in the path, or where there is none the only one of that name, if that is enough.
func (c *call) findService(byName bool) (skerry.ServiceKey, error) {
	list, err := c.apps()
	if err != nil {
		return skerry.ServiceKey{}, err
	}
	asked := c.r.PathValue("id")
	var named []skerry.ServiceKey
	for i := range list {
		for _, s := range list[i].Services {
			key := skerry.ServiceKey{App: list[i].Key, Service: s.Name}
			if serviceID(&list[i], s.Name) == asked {
				return key, nil
			}
			if byName && s.Name == asked {
				named = append(named, key)
			}
		}
	}
	if len(named) == 1 {
		return named[0], nil
	}
	return skerry.ServiceKey{}, skerry.Errorf(skerry.CodeNotFound, "there is no service %.64q", asked)
}

// serviceOf gives a service with its application, which has its manifest.
func (c *call) serviceOf(key skerry.ServiceKey) (a view.AppView, s *view.ServiceView, err error) {
	if a, err = c.app(key.App); err != nil {
		return a, nil, err
	}
	n := slices.IndexFunc(a.Services, func(s view.ServiceView) bool { return s.Name == key.Service })
	if n < 0 {
		return a, nil, skerry.Errorf(skerry.CodeNotFound, "there is no service %s any more", key)
	}
	return a, &a.Services[n], nil
}

// getService shows a service. Oakestra's Go client asks for names, too, and else shows what the list has, which is less.
func (c *call) getService() (any, error) {
	key, err := c.findService(true)
	if err != nil {
		return nil, err
	}
	a, s, err := c.serviceOf(key)
	if err != nil {
		return nil, err
	}
	running, err := c.instances(key.App)
	if err != nil {
		return nil, err
	}
	out := showService(&a, s, running)
	c.addLogs(&out, running)
	return out, nil
}

// addServices adds the services of an SLA to the application whose ID it has.
func (c *call) addServices() (any, error) {
	list, err := c.sla()
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].id == "" {
		return nil, invalidSLA(skerry.Problem{Path: "applications", Message: "one application with its applicationID is needed"})
	}
	c.r.SetPathValue("id", list[0].id)
	key, err := c.find()
	if err != nil {
		return nil, err
	}
	defer c.h.turns.take(key)()
	added := list[0].app.Spec.Services
	err = c.change(key, func(app *spec.Application) error {
		for i, s := range added {
			if app.Spec.Service(s.Name) != nil {
				return invalidSLA(skerry.Problem{Path: fmt.Sprintf("applications[0].microservices[%d].microservice_name", i),
					Message: fmt.Sprintf("application %s has a service %q already", key, s.Name)})
			}
		}
		app.Spec.Services = append(app.Spec.Services, added...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	now, err := c.app(key)
	if err != nil {
		return nil, err
	}
	type deployed struct {
		Name   string `json:"service_name"`
		Status int    `json:"status"`
	}
	out := struct {
		Job      string     `json:"job_id"`
		Deployed []deployed `json:"deployed_services"`
		Failed   []deployed `json:"failed_services"`
	}{Deployed: []deployed{}, Failed: []deployed{}}
	for _, s := range added {
		out.Job = serviceID(&now, s.Name)
		out.Deployed = append(out.Deployed, deployed{s.Name, http.StatusOK})
	}
	return out, nil
}

func (c *call) deleteService() (any, error) {
	key, err := c.findService(false)
	if err != nil {
		return nil, err
	}
	defer c.h.turns.take(key.App)()
	err = c.change(key.App, func(app *spec.Application) error {
		if len(app.Spec.Services) == 1 {
			return skerry.Errorf(skerry.CodeConflict, "%s is the last service of its application", key).WithHint("delete the application")
		}
		app.Spec.Services = slices.DeleteFunc(app.Spec.Services, func(s spec.ServiceSpec) bool { return s.Name == key.Service })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return message{"Job deleted"}, nil
}
