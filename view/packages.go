package view

import "skerry.dev/skerry"

// PackageReport says which instances contain a package, by the lists of contents (SBOMs) that are attached to their images.
type PackageReport struct {
	Found   []PackageUse     `json:"found"`
	Unknown []PackageUnknown `json:"unknown,omitempty" doc:"Instances with an image for which no readable SBOM exists."`
}

// PackageUse is a package in an image of an instance.
type PackageUse struct {
	Instance skerry.InstanceID `json:"instance"`
	Service  skerry.ServiceKey `json:"service"`
	Cluster  string            `json:"cluster,omitempty"`
	Image    string            `json:"image" doc:"Image with its digest."`
	Package  string            `json:"package"`
	Version  string            `json:"version,omitempty"`
}

// PackageUnknown is an image of whose contents nothing is known.
type PackageUnknown struct {
	Image     string              `json:"image"`
	Reason    string              `json:"reason"`
	Instances []skerry.InstanceID `json:"instances"`
}
