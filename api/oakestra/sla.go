package oakestra

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/ctl/convert"
	"skerry.dev/skerry/spec"
)

// Bounds of an SLA: converting it takes computing for each application, and looks for the line of each value.
const (
	maxApplications = 64
	maxValues       = 20_000
)

// values counts the values in one.
func values(in any) int {
	sum := 1
	switch in := in.(type) {
	case map[string]any:
		for _, v := range in {
			sum += values(v)
		}
	case []any:
		for _, v := range in {
			sum += values(v)
		}
	}
	return sum
}

// converted is an application of an SLA.
type converted struct {
	app      *spec.Application
	path     string // in the SLA
	id       string // of the application that services are added to
	name     string // as the SLA has it
	warnings []string
	fields   []convert.Field // of the SLA, as if it were the first application
}

// readSLA converts every application of an SLA, or none.
func readSLA(data []byte) ([]converted, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var sla map[string]any
	if err := dec.Decode(&sla); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the SLA is not an object")
	}
	if n := values(sla); n > maxValues {
		return nil, skerry.Errorf(skerry.CodeTooLarge, "the SLA has %d values; at most %d are allowed", n, maxValues).
			WithHint("send its applications one by one")
	}
	list, _ := sla["applications"].([]any)
	if len(list) == 0 || len(list) > maxApplications {
		return nil, invalidSLA(skerry.Problem{Path: "applications",
			Message: fmt.Sprintf("a list of 1 to %d applications is needed", maxApplications)})
	}
	out := make([]converted, len(list))
	for i, app := range list {
		if i > 0 { // what is beside the applications was looked at with the first
			sla = map[string]any{"sla_version": sla["sla_version"]}
		}
		sla["applications"] = []any{app}
		text, err := json.Marshal(sla)
		if err != nil {
			return nil, err
		}
		path := fmt.Sprintf("applications[%d]", i)
		if out[i], err = convertOne(text, path); err != nil {
			return nil, err
		}
		fields, _ := app.(map[string]any)
		out[i].id, _ = fields["applicationID"].(string)
		out[i].name, _ = fields["application_name"].(string)
		namespace, _ := fields["application_namespace"].(string)
		if out[i].app.Metadata.Namespace = convert.Name(namespace); out[i].app.Metadata.Namespace == "" {
			return nil, invalidSLA(skerry.Problem{Path: path + ".application_namespace", Message: "a namespace is needed"})
		}
	}
	return out, nil
}

// convertOne converts an SLA with one application, which has a path of its own in the SLA that it comes from.
func convertOne(text []byte, path string) (converted, error) {
	out := converted{path: path}
	result, err := convert.Oakestra(text, convert.Options{})
	if result == nil {
		return out, err
	}
	out.fields = result.Fields
	var refused []skerry.Problem
	for _, f := range result.Fields {
		at := out.at(f.Path)
		switch {
		case f.Verdict == convert.Refused:
			refused = append(refused, skerry.Problem{Path: at, Message: f.Note})
		case f.Verdict == convert.Approximated && !hasMeaning(f.Path):
			out.warnings = append(out.warnings, at+": "+f.Note)
		}
	}
	if len(refused) > 0 {
		return out, invalidSLA(refused...)
	}
	if err != nil {
		return out, out.explain(err)
	}
	none := 0
	for i := range result.App.Spec.Services {
		if s := &result.App.Spec.Services[i]; s.Mode != spec.ModeJob { // an instance of a job is its run
			s.Replicas = &none
		}
	}
	out.app = result.App
	return out, nil
}

// hasMeaning reports whether a field that has none in a manifest has one here.
func hasMeaning(path string) bool {
	switch path[strings.LastIndexByte(path, '.')+1:] {
	case "application_namespace", "applicationID", "customerID":
		return true
	}
	return false
}

func invalidSLA(wrong ...skerry.Problem) error {
	return &skerry.Error{Code: skerry.CodeInvalid, Message: "the SLA is not valid", Problems: wrong}
}

// first is how a path begins in an SLA with one application.
const first = "applications[0]"

// at gives the path in the SLA of one in the SLA with this application alone.
func (made *converted) at(path string) string {
	if rest, ok := strings.CutPrefix(path, first); ok {
		return made.path + rest
	}
	return path
}

// explain says of which fields of the SLA an error about the manifest is that it became.
func (made *converted) explain(err error) error {
	e := *skerry.AsError(err)
	if made.app != nil && e.Code == skerry.CodeNotFound {
		return invalidSLA(skerry.Problem{Path: made.path + ".application_namespace", Message: e.Message,
			Hint: fmt.Sprintf("`skerry namespace create %s --org ORGANISATION` makes it", made.app.Metadata.Namespace)})
	}
	if len(e.Problems) == 0 {
		return &e
	}
	e.Message, e.Hint, e.Problems = "the SLA is not valid", "", slices.Clone(e.Problems)
	for i := range e.Problems {
		e.Problems[i].Path = made.origin(e.Problems[i].Path)
	}
	return &e
}

// origin gives the path in the SLA of a field of the manifest, or of what holds it.
func (made *converted) origin(path string) string {
	holder := first
	if rest, ok := strings.CutPrefix(path, "spec.services["); ok {
		var number string
		number, path, _ = strings.Cut(rest, "]")
		holder, path = holder+".microservices["+number+"]", strings.TrimPrefix(path, ".")
	}
	for _, f := range made.fields {
		if f.Verdict == convert.Kept && strings.HasPrefix(f.Path, holder) && f.Note != "" && strings.HasPrefix(path, f.Note) {
			return made.at(f.Path)
		}
	}
	return made.at(holder)
}
