package spec

import "slices"

// Features of manifests that came after the first agents. A worker's agent reports those that it honours, because it would leave out
// in silence what it does not know; a service goes only to workers that honour all of its features. The names are those of the fields.
const (
	FeatureEnvFields  = "envFields"
	FeatureEnvSecrets = "envSecrets"
)

// AgentFeatures lists what this build's agent honours, sorted.
func AgentFeatures() []string { return []string{FeatureEnvFields, FeatureEnvSecrets} }

// MaxFeatures bounds what is taken of the features that a worker or a site reports.
const MaxFeatures = 64

// Features lists what the service needs of an agent beyond what the first ones did, sorted.
func (s *ServiceSpec) Features() []string {
	var out []string
	for container := range s.containers() {
		if len(container.EnvFields) > 0 {
			out = append(out, FeatureEnvFields)
		}
		if len(container.EnvSecrets) > 0 {
			out = append(out, FeatureEnvSecrets)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Lacks gives the first of the service's features that is not among those given, or "".
func (s *ServiceSpec) Lacks(features []string) string {
	for _, need := range s.Features() {
		if !slices.Contains(features, need) {
			return need
		}
	}
	return ""
}
