package spec

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// WithoutDefaults gives the shortest manifest that means the same: without what SetDefaults would fill in, and without what the server
// finds out by itself. The application must have its defaults. It is left as it is.
func (a *Application) WithoutDefaults() *Application {
	full := a.clone()
	for i := range full.Spec.Services {
		withoutServers(&full.Spec.Services[i])
	}
	short := full.clone()
	if short.Metadata.Namespace == DefaultNamespace {
		short.Metadata.Namespace = ""
	}
	for i := range short.Spec.Services {
		alone := Application{Metadata: full.Metadata, Spec: ApplicationSpec{Services: full.Spec.Services[i : i+1]}}
		want, service := alone.text(), &short.Spec.Services[i]
		shorten(reflect.ValueOf(service).Elem(), func() bool {
			trial := Application{Metadata: full.Metadata, Spec: ApplicationSpec{Services: []ServiceSpec{*service}}}
			return bytes.Equal(trial.filled(), want)
		})
	}
	if !bytes.Equal(short.filled(), full.text()) { // a default that follows from another service
		return full
	}
	return short
}

// withoutServers empties what the server finds out.
func withoutServers(s *ServiceSpec) { s.Platforms, s.Pinned, s.Needs = nil, nil, nil }

// shorten empties each field of v, or of what is in it, that may be empty.
func shorten(value reflect.Value, same func() bool) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			shorten(value.Elem(), same)
		}
	case reflect.Slice:
		for i := range value.Len() {
			shorten(value.Index(i), same)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field := value.Field(i)
			if !field.CanSet() || field.IsZero() {
				continue
			}
			was := reflect.ValueOf(field.Interface())
			field.SetZero()
			if !same() {
				field.Set(was)
				shorten(field, same)
			}
		}
	}
}

// filled is the text of a copy with its defaults.
func (a *Application) filled() []byte {
	c := a.clone()
	c.SetDefaults()
	return c.text()
}

func (a *Application) clone() *Application {
	c := new(Application)
	if err := json.Unmarshal(a.text(), c); err != nil {
		panic("a manifest that was written can be read: " + err.Error())
	}
	return c
}

func (a *Application) text() []byte {
	data, err := json.Marshal(a)
	if err != nil {
		panic("a manifest always marshals: " + err.Error())
	}
	return data
}
