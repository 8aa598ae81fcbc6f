package api

import (
	"maps"

	"github.com/danielgtaylor/huma/v2"
)

// apiVersion is that of the interface, not of the program.
const apiVersion = "1"

// emptyDocument is the OpenAPI document before there is any operation in it.
func emptyDocument(registry huma.Registry) *huma.OpenAPI {
	return &huma.OpenAPI{OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Skerry", Version: apiVersion, Description: "The REST interface of root and cluster.",
			Contact: &huma.Contact{Name: "Skerry", URL: "https://skerry.dev"},
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
		Servers: []*huma.Server{{URL: "/", Description: "The root or the cluster that serves this document."}},
		Tags:    documentTags(),
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"bearer": {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: "An access token, or the token from a login."},
			"basic":  {Type: "http", Scheme: "basic", Description: "User name with password or access token; for image registries."},
		}}}
}

// wholeDocument adds what only readers of the document need. Its schemas are a copy: requests are held against the others meanwhile, and
// nobody locks those.
func wholeDocument(of *huma.OpenAPI, problem *huma.Schema) *huma.OpenAPI {
	doc, parts := *of, *of.Components
	parts.Schemas = huma.NewMapRegistry(schemasPrefix, schemaName)
	maps.Copy(parts.Schemas.Map(), of.Components.Schemas.Map())
	addManifestSchemas(parts.Schemas)
	parts.Responses = failureResponses(problem)
	doc.Components = &parts
	return &doc
}

// documentTags describes the groups of operations, in the order in which a reader meets them.
func documentTags() (out []*huma.Tag) {
	for _, group := range [][2]string{
		{"login", "Logging in and out, one's own password and one-time codes."},
		{"access tokens", "Access tokens for programs."},
		{"users", "Users and their grants."},
		{"organisations", "Organisations, their namespaces and quotas."},
		{"applications", "Applications and their services: applying, rolling out, scaling, restarting."},
		{"instances", "Instances of services: logs, commands, ports, and why they are where they are."},
		{"events", "What happened, and the watch of what changes."},
		{"images", "The built-in registry."},
		{"secrets", "Secrets, which nobody can read."},
		{"certificates", "Certificates of ingresses."},
		{"volumes", "Local volumes of replicas."},
		{"snapshots", "Snapshots of local volumes; only at a cluster."},
		{"clusters", "The sites; only at the root."},
		{"upgrades", "Upgrades of the workers of many sites; only at the root."},
		{"workers", "The machines of a site; only at a cluster."},
		{"grants", "What a site grants the users of its root; only at a cluster."},
		{"join tokens", "Tokens with which clusters and workers join."},
		{"members", "Clusters and workers that have joined, and their keys."},
		{"metrics", "Metrics of the server and of instances."},
		{"dashboard", "The pages in the browser."},
		{"system", "The server: version, audit, health, and the descriptions of this interface."},
	} {
		out = append(out, &huma.Tag{Name: group[0], Description: group[1]})
	}
	return out
}
