package spec

import "slices"

// Features of manifests that came after the first agents. A worker's agent reports those that it honours, because it would leave out
// in silence what it does not know; a service goes only to workers that honour all of its features. The names are those of the fields.
const (
	FeatureAliases     = "aliases"
	FeatureChallenges  = "challenges" // of certificate authorities, at the ingress; no service needs it
	FeatureDeviceClass = "deviceClass"
	FeatureEnvFields   = "envFields"
	FeatureEnvSecrets  = "envSecrets"
	FeatureExtraHosts  = "extraHosts"
	FeatureFileSystem  = "fileSystem"
	FeatureHostAddress = "hostAddress"
	FeatureHostname    = "hostname"
	FeatureNFS         = "nfs"       // only of workers whose operator lets servers be mounted
	FeaturePerDevice   = "perDevice" // the mode; a site that does not know it would run one instance
	FeaturePostStart   = "postStart"
	FeaturePreStop     = "preStop"
	FeatureServicePort = "servicePort"
	FeatureSubPath     = "subPath"
	FeatureSysctls     = "sysctls"
	FeatureUlimits     = "ulimits"
)

// AgentFeatures lists what this build's agent honours, sorted.
func AgentFeatures() []string {
	return []string{FeatureAliases, FeatureChallenges, FeatureDeviceClass, FeatureEnvFields, FeatureEnvSecrets, FeatureExtraHosts,
		FeatureFileSystem, FeatureHostAddress, FeatureHostname, FeatureNFS, FeaturePerDevice, FeaturePostStart, FeaturePreStop,
		FeatureServicePort, FeatureSubPath, FeatureSysctls, FeatureUlimits}
}

// MaxFeatures bounds what is taken of the features that a worker or a site reports.
const MaxFeatures = 64

// FeaturesOf lists what a service needs of an agent beyond what the first ones did, sorted.
func FeaturesOf(s *ServiceSpec) []string {
	out := slices.Clone(s.Needs)
	if len(s.Aliases) > 0 {
		out = append(out, FeatureAliases)
	}
	if slices.ContainsFunc(s.Devices, func(r DeviceRequest) bool { return r.Class != "" }) {
		out = append(out, FeatureDeviceClass)
	}
	if s.Mode == ModePerDevice {
		out = append(out, FeaturePerDevice)
	}
	for container := range containersOf(s) {
		if len(container.EnvFields) > 0 {
			out = append(out, FeatureEnvFields)
		}
		if len(container.EnvSecrets) > 0 {
			out = append(out, FeatureEnvSecrets)
		}
		if container.PostStart != nil {
			out = append(out, FeaturePostStart)
		}
		if container.PreStop != nil {
			out = append(out, FeaturePreStop)
		}
		if len(container.Sysctls) > 0 {
			out = append(out, FeatureSysctls)
		}
		if len(container.Ulimits) > 0 {
			out = append(out, FeatureUlimits)
		}
	}
	if s.Hostname != "" {
		out = append(out, FeatureHostname)
	}
	if onNetwork(s) {
		out = append(out, FeatureFileSystem)
	}
	if slices.ContainsFunc(s.Volumes, func(v Volume) bool { return v.NFS != nil }) {
		out = append(out, FeatureNFS)
	}
	if HostAddressLack(s) != "" {
		out = append(out, FeatureHostAddress)
	}
	if len(s.ExtraHosts) > 0 {
		out = append(out, FeatureExtraHosts)
	}
	if subPathIn(s) != "" {
		out = append(out, FeatureSubPath)
	}
	if len(ServicePortsOf(s)) > 0 {
		out = append(out, FeatureServicePort)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// LackedFeature gives the first feature that a service needs and that is not among those given, or "".
func LackedFeature(s *ServiceSpec, features []string) string {
	for _, need := range FeaturesOf(s) {
		if !slices.Contains(features, need) {
			return need
		}
	}
	return ""
}
