package main

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/s3"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/journal"
)

// parentFlags are those of roles that have children.
type parentFlags struct {
	link, registryConfig string
	plainHTTP            []string
	registries           []string // that may be asked
	images               string   // where those are kept that are pushed here
	imageCache           skerry.Bytes
	imageSpace           skerry.Bytes
	imageRate            skerry.Bytes
	imageUntagged        time.Duration
	places               string // file with the places for snapshots, of a cluster
	lostAfter, certLife  time.Duration
	events               int
	eventAge             time.Duration
	api                  apiFlags
	names                tier.NameOptions
	namesPublic          []string
}

// addNames adds what a name server for hosts of services needs.
func (f *parentFlags) addNames(fs *pflag.FlagSet) {
	fs.StringVar(&f.names.Listen, "dns", "", "address on which to serve DNS for the hosts of ingresses, ADDRESS:53 (default: disabled)")
	fs.StringSliceVar(&f.names.Zones, "dns-zone", nil,
		"zone delegated to this name server; may be repeated, the first one contains the server itself")
	fs.StringSliceVar(&f.namesPublic, "dns-public", nil, "public address of this name server; may be repeated (default that of --dns)")
}

func (f *parentFlags) nameOptions() (tier.NameOptions, error) {
	o := f.names
	for _, s := range f.namesPublic {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return o, skerry.Errorf(skerry.CodeInvalid, "--dns-public %q is not an IP address", s).WithHint("write it as 192.0.2.7")
		}
		o.Addrs = append(o.Addrs, a.Unmap())
	}
	return o, o.Fill()
}

func (f *parentFlags) add(fs *pflag.FlagSet, link, api string) {
	fs.StringVar(&f.link, "link", link, "address on which children connect")
	fs.Var((*patience)(&f.lostAfter), "lost-after",
		"silence after which a child counts as lost and its instances start elsewhere (default: 5m at a root, which also accepts never; at a cluster, set by --profile)")
	fs.DurationVar(&f.certLife, "cert-life", 0, "lifetime of children's certificates (0: the default)")
	f.api.add(fs, api)
	f.addNames(fs)
	fs.StringVar(&f.images, "image-bucket", "", "bucket of S3 that keeps the images that are pushed here, for all processes of this role, "+
		"s3://BUCKET/PREFIX?endpoint=URL&region=NAME; credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
		"or in a file (&credentials=FILE) "+
		"(default: the data directory, with copies at the processes that stand by)")
	f.imageRate = parents.DefaultImageRate
	fs.Var(role.BytesFlag(&f.imageRate), "image-copy-rate",
		"bytes a second with which a process that stands by copies the images of the one that leads; 0 is no limit")
	f.addShared(fs)
}

// patience is a time without a child; never is less than 0.
type patience time.Duration

func (p *patience) String() string {
	switch d := time.Duration(*p); {
	case d == 0:
		return ""
	case d < 0:
		return "never"
	default:
		return d.String()
	}
}

func (p *patience) Set(text string) error {
	if text == "never" {
		*p = -1
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 90s; never is valid only at a root", text)
	}
	*p = patience(d)
	return nil
}

func (*patience) Type() string { return "duration" }

func (f *parentFlags) addShared(fs *pflag.FlagSet) {
	fs.StringVar(&f.registryConfig, "registry-config", "",
		"credentials for image registries, in the form of ~/.docker/config.json; with \"organisations\": [...] in an entry, only those may use the registry")
	fs.StringSliceVar(&f.registries, "registry", nil,
		"image registry (host or host:port) to allow, which may be in a private network; may be repeated (default: all at public addresses, and those of --registry-config and --plain-http)")
	fs.StringSliceVar(&f.plainHTTP, "plain-http", nil, "image registry (host:port) to use without TLS; may be repeated")
	f.imageCache = parents.DefaultImageCache
	fs.Var(role.BytesFlag(&f.imageCache), "image-cache",
		"space for cached images of other registries, and of --image-bucket, such as 16Gi; "+
			"images that are not in use are removed first, and an image that does not fit is refused")
	fs.Var(role.BytesFlag(&f.imageSpace), "image-space", "space for the images that were pushed here, such as 100Gi; above it, "+
		"images that nothing uses are removed: those without a tag first, then those that were not used for longest; 0 is no limit (default 0)")
	fs.DurationVar(&f.imageUntagged, "image-untagged", 30*24*time.Hour,
		"how long a pushed image that has no tag and that nothing uses is kept after its last use; 0 keeps it")
	fs.IntVar(&f.events, "keep-events", 0, "number of events to keep (default 2000)")
	fs.DurationVar(&f.eventAge, "keep-events-for", 0, "age at which events are dropped (default 168h)")
}

// s3File has the credentials for a bucket.
type s3File struct {
	AccessKey    string `json:"accessKey"`
	SecretKey    string `json:"secretKey"`
	SessionToken string `json:"sessionToken,omitempty"`
}

// depot gives the bucket of --image-bucket, or nil.
func (f *parentFlags) depot() (artifact.Depot, error) {
	if f.images == "" {
		return nil, nil
	}
	place, err := s3.ParsePlace(f.images)
	if err != nil {
		return nil, err
	}
	var who s3File
	if place.Credentials != "" {
		if err := ownFile("--image-bucket", place.Credentials, &who); err != nil {
			return nil, err
		}
		if who.AccessKey == "" || who.SecretKey == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--image-bucket %s: it has no accessKey or no secretKey", place.Credentials)
		}
	}
	return s3.OpenStore(place, s3.Config{AccessKey: who.AccessKey, SecretKey: who.SecretKey, SessionToken: who.SessionToken})
}

func (f *parentFlags) journal() journal.Limits {
	return journal.Limits{Events: f.events, Age: f.eventAge}
}

func (f *parentFlags) registry() (*artifact.Source, error) {
	guard := &artifact.Guard{Listed: slices.Concat(f.registries, f.plainHTTP), Only: len(f.registries) > 0}
	src := &artifact.Source{PlainHTTP: f.plainHTTP, Guard: guard}
	if f.registryConfig != "" {
		c, err := artifact.ReadRegistryConfig(f.registryConfig)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--registry-config: %w", err)
		}
		src.Credentials, guard.Organisations = c.Credentials, c.Organisations
		guard.Listed = append(guard.Listed, c.Hosts...)
	}
	return src, nil
}

// readAdmission reads a site's admission policy from YAML; unknown fields are refused.
func readAdmission(file string) (clustercore.Admission, error) {
	var a clustercore.Admission
	if file == "" {
		return a, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return a, skerry.Errorf(skerry.CodeInvalid, "--admission: %w", err)
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return a, skerry.Errorf(skerry.CodeInvalid, "--admission %s: %w", file, err)
	}
	p := spec.DecodeStrict(j, &a)
	if len(p) == 0 {
		p = a.Problems()
	}
	if len(p) > 0 {
		return a, &skerry.Error{Code: skerry.CodeInvalid, Message: "the admission policy " + file + " is not valid", Problems: p}
	}
	return a, nil
}

const placesHelp = "file with the places in S3 to which snapshots of schedules may be sent, and their credentials; " +
	"only its owner may read it"

// placesFile reads the places for snapshots of schedules, each time that they are needed: credentials change.
func placesFile(file string) func() (cluster.Places, error) {
	if file == "" {
		return nil
	}
	return func() (p cluster.Places, err error) {
		err = ownFile("--snapshot-places", file, &p)
		if wrong := p.Problems(); err == nil && len(wrong) > 0 {
			err = &skerry.Error{Code: skerry.CodeInvalid, Message: "the places for snapshots in " + file + " are not valid", Problems: wrong}
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// readOIDC reads how to log in at an identity provider, from YAML.
func readOIDC(file string) (*auth.OIDCConfig, error) {
	if file == "" {
		return nil, nil
	}
	c := &auth.OIDCConfig{}
	err := ownFile("--oidc", file, c)
	if wrong := c.Problems(); err == nil && len(wrong) > 0 {
		err = &skerry.Error{Code: skerry.CodeInvalid, Message: "the identity provider in " + file + " is not set up right", Problems: wrong}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ownFile reads the YAML of a file with secrets, which only its owner may read. Unknown fields are refused.
func ownFile(flag, file string, into any) error {
	st, err := os.Stat(file)
	if err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return skerry.Errorf(skerry.CodeInvalid, "%s %s: others may read it, and it has secrets", flag, file).WithHint("chmod 600 %s", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "%s: %w", flag, err)
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "%s %s: %w", flag, file, err)
	}
	if wrong := spec.DecodeStrict(j, into); len(wrong) > 0 {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: flag + " " + file + " is not valid", Problems: wrong}
	}
	return nil
}
