// Kubefields prints the fields that objects of Kubernetes have, as the types of its API know them, for ctl/convert's tests: a kind, a path
// and a value of the field's type on each line. It is a module of its own, because these types take a minute to compile and to check.
// "make generate" writes what it prints into ctl/convert/testdata/kubernetes-fields.txt.
package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kinds are those that ctl/convert reads, with their types.
var kinds = map[string]any{
	"Deployment":              apps.Deployment{},
	"StatefulSet":             apps.StatefulSet{},
	"DaemonSet":               apps.DaemonSet{},
	"ReplicaSet":              apps.ReplicaSet{},
	"Job":                     batch.Job{},
	"CronJob":                 batch.CronJob{},
	"Pod":                     core.Pod{},
	"Service":                 core.Service{},
	"Ingress":                 networking.Ingress{},
	"NetworkPolicy":           networking.NetworkPolicy{},
	"HorizontalPodAutoscaler": autoscaling.HorizontalPodAutoscaler{},
	"PersistentVolumeClaim":   core.PersistentVolumeClaim{},
	"ConfigMap":               core.ConfigMap{},
	"Secret":                  core.Secret{},
}

func main() {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fields := map[string]string{}
		walk(fields, reflect.TypeOf(kinds[kind]), "", nil)
		for _, path := range slices.Sorted(maps.Keys(fields)) {
			switch {
			case path == "", path == "kind", path == "apiVersion":
			case strings.Contains(path, "template.spec.") && kind != "Deployment": // one function reads all pods
			default:
				fmt.Println(kind, path, fields[path])
			}
		}
	}
}

// walk adds all fields of a type, such as spec.replicas, with a value for each. A list has one element, and a type within itself ends.
func walk(fields map[string]string, of reflect.Type, path string, within []reflect.Type) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if value := sample(of); value != "" {
		fields[path] = value
		return
	}
	if slices.Contains(within, of) {
		return
	}
	within = append(slices.Clip(within), of)
	switch of.Kind() {
	case reflect.Slice:
		walk(fields, of.Elem(), path+".0", within)
	case reflect.Map:
		walk(fields, of.Elem(), path+".sample", within)
	case reflect.Struct:
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			switch {
			case name == "status" || name == "metadata" && path == "":
			case name == "":
				walk(fields, of.Field(i).Type, path, within) // its fields are this one's
			default:
				walk(fields, of.Field(i).Type, strings.TrimPrefix(path+"."+name, "."), within)
			}
		}
	}
}

// sample gives a value, in JSON, of a type that has no fields of its own.
func sample(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		return `"5Mi"`
	case reflect.TypeFor[intstr.IntOrString]():
		return `7`
	case reflect.TypeFor[meta.Time](), reflect.TypeFor[meta.MicroTime]():
		return `"2026-01-02T03:04:05Z"`
	case reflect.TypeFor[meta.FieldsV1]():
		return `{"f":{}}`
	case reflect.TypeFor[[]byte]():
		return `"dGV4dA=="`
	}
	switch of.Kind() {
	case reflect.String:
		return `"sample"`
	case reflect.Bool:
		return `true`
	case reflect.Int, reflect.Int32, reflect.Int64:
		return `7`
	}
	return ""
}
