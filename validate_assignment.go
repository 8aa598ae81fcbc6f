package skerry

import (
	"fmt"
	"math"
	"strings"
)

// maxIDLength leaves room for what is added to an ID in the name of a file.
const maxIDLength = 200

// CheckInstanceID accepts what may be part of a path: letters, digits, and inner hyphens, dots and underscores.
func CheckInstanceID(id InstanceID) error {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if n := len(id); n == 0 || n > maxIDLength {
		return fmt.Errorf("an instance ID has from 1 to %d characters, not %d", maxIDLength, n)
	}
	if !strings.ContainsRune(alphanumeric, rune(id[0])) || strings.Trim(string(id), alphanumeric+"-._") != "" {
		return fmt.Errorf("instance ID %q is not valid; use letters, digits and inner hyphens, dots and underscores", string(id))
	}
	return nil
}

// CheckNames reports names in an assignment that could not be parts of paths and addresses. A parent that sends such a one was taken
// over: no manifest with them is accepted anywhere.
func (a *Assignment) CheckNames() error {
	c := &checker{}
	if err := CheckInstanceID(a.ID); err != nil {
		c.add("id", "", "%s", err)
	}
	c.name("service.app.namespace", a.Service.App.Namespace)
	c.name("service.app.name", a.Service.App.Name)
	c.name("service.service", a.Service.Service)
	c.between("ordinal", a.Ordinal, 0, math.MaxInt32)
	for i, v := range a.Spec.Volumes {
		c.name(fmt.Sprintf("spec.volumes[%d].name", i), v.Name)
	}
	for kind, list := range map[string][]SideContainer{"init": a.Spec.Init, "sidecars": a.Spec.Sidecars} {
		for i := range list {
			c.name(fmt.Sprintf("spec.%s[%d].name", kind, i), list[i].Name)
		}
	}
	return c.problem()
}

// CheckPlaces reports what is wrong with all that an assignment puts into a container or takes from a worker: names, paths, mounts,
// files, secrets, devices, ports and amounts.
func (a *Assignment) CheckPlaces() error {
	c, s := &checker{}, &a.Spec
	c.container("spec", &s.Container, s)
	c.resources("spec.resources", s.Resources)
	for kind, list := range map[string][]SideContainer{"init": s.Init, "sidecars": s.Sidecars} {
		for i := range list {
			p := fmt.Sprintf("spec.%s[%d]", kind, i)
			c.container(p, &list[i].Container, s)
			c.resources(p+".resources", list[i].Resources)
		}
	}
	c.volumes("spec", s)
	c.devices("spec", s)
	c.secrets("spec", s)
	c.ports("spec", s)
	return c.problem()
}

// problem gives the first problem.
func (c *checker) problem() error {
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", c.problems[0].Path, c.problems[0].Message)
}
