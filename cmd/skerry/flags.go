package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

// envPrefix begins the environment variables that stand in for flags of role commands: --log-level is SKERRY_LOG_LEVEL.
const envPrefix = "SKERRY_"

// fromEnv fills flags that were not given from the environment. Flags that mean something else to client commands of the
// same process do not exist on role commands.
func fromEnv(cmd *cobra.Command) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || first != nil || f.Name == "help" {
			return
		}
		key := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v, ok := os.LookupEnv(key)
		if !ok || v == "" {
			return
		}
		if err := f.Value.Set(v); err != nil {
			first = skerry.Errorf(skerry.CodeInvalid, "environment variable %s: %w", key, err)
			return
		}
		f.Changed = true
	})
	return first
}

// commonFlags are those of every role.
type commonFlags struct {
	data, store, logFormat, logLevel string
}

func (f *commonFlags) add(fs *pflag.FlagSet, role string) {
	fs.StringVar(&f.data, "data", filepath.Join(defaultData(), role), "data directory")
	fs.StringVar(&f.store, "store", "",
		"store: sqlite:FILE, memory: or etcd://HOST:PORT,HOST:PORT/PREFIX (default a SQLite file in the data directory); of several processes with one etcd prefix, one leads and the others stand by")
	f.addLog(fs)
}

func (f *commonFlags) addLog(fs *pflag.FlagSet) {
	fs.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (f *commonFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--log-level %q is not a level", f.logLevel).WithHint("use debug, info, warn or error")
	}
	opt := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opt)), nil
	}
	return nil, skerry.Errorf(skerry.CodeInvalid, "--log-format %q is not a format", f.logFormat).WithHint("use text or json")
}

func (f *commonFlags) common() (node.Common, error) {
	log, err := f.logger()
	return node.Common{Dir: f.data, StoreURL: f.store, Version: version, Log: log}, err
}

// parentFlags are those of roles that have children.
type parentFlags struct {
	link, registryConfig string
	plainHTTP            []string
	registries           []string // that may be asked
	imageCache           skerry.Bytes
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
	f.imageCache = node.DefaultImageCache
	fs.Var(bytesFlag(&f.imageCache), "image-cache",
		"space for cached images of other registries, such as 16Gi; images that are not in use are removed first, and an image that does not fit is refused")
	fs.IntVar(&f.events, "keep-events", 0, "number of events to keep (default 2000)")
	fs.DurationVar(&f.eventAge, "keep-events-for", 0, "age at which events are dropped (default 168h)")
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

// joinFlags are those of roles that have a parent.
type joinFlags struct {
	name, token string
	tokenFile   string // in place of token
	parents     []string
	wait        time.Duration
	port        string
}

func (f *joinFlags) add(fs *pflag.FlagSet, parentFlag, parent, port string) {
	f.port = port
	fs.StringVar(&f.name, "name", "", "name within the site, a DNS label (default the name it joined with, or the host name)")
	fs.StringVar(&f.token, "join", "",
		"join token, or @FILE that contains it; needed only the first time. Other users of the machine can see arguments; --join-file and SKERRY_JOIN hide the token")
	fs.StringVar(&f.tokenFile, "join-file", "", "file with the join token")
	fs.StringSliceVar(&f.parents, parentFlag, nil, "address of the "+parent+", HOST or HOST:PORT (port "+port+" by default); may be repeated")
	fs.DurationVar(&f.wait, "join-wait", time.Minute, "how long to wait for an unreachable parent when joining")
}

// text gives the join token.
func (f *joinFlags) text() (string, error) {
	if f.tokenFile == "" {
		return tokenText(f.token)
	}
	if f.token != "" {
		return "", skerry.Errorf(skerry.CodeInvalid, "--join and --join-file exclude each other").WithHint("give one of them")
	}
	return tokenText("@" + f.tokenFile)
}

// tokenText gives what --join says, or what the file holds that it names.
func tokenText(s string) (string, error) {
	file, ok := strings.CutPrefix(s, "@")
	if !ok {
		return s, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "--join: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// hostPorts gives addresses without a port that one.
func hostPorts(list []string, port string) (out []string) {
	for _, p := range list {
		if _, _, err := net.SplitHostPort(p); err != nil {
			p = net.JoinHostPort(strings.Trim(p, "[]"), port)
		}
		out = append(out, p)
	}
	return out
}

func (f *joinFlags) join(data, parentFlag string) (node.Join, error) {
	j := node.Join{Name: f.name, Token: f.token, Wait: f.wait, Parent: hostPorts(f.parents, f.port)}
	var err error
	if j.Token, err = f.text(); err != nil {
		return j, err
	}
	if m, err := auth.OpenMember(filepath.Join(data, "identity")); err == nil {
		if j.Name != "" && j.Name != m.Name() {
			return j, skerry.Errorf(skerry.CodeConflict, "this data directory belongs to %s %q, not to %q", m.Tier(), m.Name(), j.Name).
				WithHint("omit --name, or use another --data directory")
		}
		j.Name = m.Name()
	}
	if j.Name == "" {
		name, err := hostName()
		if err != nil {
			return j, err
		}
		j.Name = name
	}
	if len(j.Parent) == 0 {
		return j, skerry.Errorf(skerry.CodeInvalid, "--%s is missing", parentFlag).
			WithHint("give the address of the parent, such as --%s 192.0.2.1:%s", parentFlag, f.port)
	}
	return j, nil
}

// hostName makes a valid name of the machine's.
func hostName() (string, error) {
	h, _ := os.Hostname()
	h, _, _ = strings.Cut(strings.ToLower(h), ".")
	if err := skerry.CheckName(h); err != nil {
		return "", skerry.Errorf(skerry.CodeInvalid, "the host name %q is not a valid name", h).WithHint("give one with --name")
	}
	return h, nil
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
		st, err := os.Stat(file)
		if err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--snapshot-places %s: others may read it, and it has credentials", file).
				WithHint("chmod 600 %s", file)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--snapshot-places: %w", err)
		}
		j, err := yaml.YAMLToJSONStrict(data)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--snapshot-places %s: %w", file, err)
		}
		wrong := spec.DecodeStrict(j, &p)
		if len(wrong) == 0 {
			wrong = p.Problems()
		}
		if len(wrong) > 0 {
			return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the places for snapshots in " + file + " are not valid", Problems: wrong}
		}
		return p, nil
	}
}

// readOIDC reads how to log in at an identity provider, from YAML.
func readOIDC(file string) (*auth.OIDCConfig, error) {
	if file == "" {
		return nil, nil
	}
	st, err := os.Stat(file)
	if err == nil && runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--oidc %s: others may read it, and it has a secret", file).WithHint("chmod 600 %s", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--oidc: %w", err)
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--oidc %s: %w", file, err)
	}
	c := &auth.OIDCConfig{}
	wrong := spec.DecodeStrict(j, c)
	if len(wrong) == 0 {
		wrong = c.Problems()
	}
	if len(wrong) > 0 {
		return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the identity provider in " + file + " is not set up right", Problems: wrong}
	}
	return c, nil
}

func parseLocation(s string) (*spec.Location, error) {
	if s == "" {
		return nil, nil
	}
	lat, lon, ok := strings.Cut(s, ",")
	a, err1 := strconv.ParseFloat(strings.TrimSpace(lat), 64)
	b, err2 := strconv.ParseFloat(strings.TrimSpace(lon), 64)
	if !ok || err1 != nil || err2 != nil || a < -90 || a > 90 || b < -180 || b > 180 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--location %q is not a location", s).
			WithHint("write latitude,longitude in degrees, such as 53.87,10.69")
	}
	return &spec.Location{Lat: a, Lon: b}, nil
}

// parsePower reads "IDLE,BUSY" in watts; empty: not known.
func parsePower(s string) (*wire.Power, error) {
	if s == "" {
		return nil, nil
	}
	idle, busy, ok := strings.Cut(s, ",")
	a, err1 := strconv.ParseFloat(strings.TrimSpace(idle), 64)
	b, err2 := strconv.ParseFloat(strings.TrimSpace(busy), 64)
	if !ok || err1 != nil || err2 != nil || !(a >= 0 && b >= a && b <= 1e6) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--power %q is not IDLE,BUSY",
			s).WithHint("write watts with nothing running and with all cores busy, such as 2.5,6.8")
	}
	return &wire.Power{Idle: a, Busy: b}, nil
}

// checkKeys accepts KEY and KEY=VALUE.
func checkKeys(flag string, list []string) error {
	for _, t := range list {
		if k, _, _ := strings.Cut(t, "="); k == "" || strings.ContainsAny(t, " \t") {
			return skerry.Errorf(skerry.CodeInvalid, "%s %q is not KEY or KEY=VALUE", flag, t)
		}
	}
	return nil
}

func parseLabels(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--label %q is not KEY=VALUE", l)
		}
		m[k] = v
	}
	return m, nil
}

// amount is a flag whose value is an amount of bytes or of CPU.
type amount[T ~int64] struct {
	v     *T
	parse func(string) (T, error)
	show  func(T) string
}

func (a amount[T]) String() string {
	if a.v == nil || *a.v == 0 {
		return ""
	}
	return a.show(*a.v)
}
func (a amount[T]) Set(s string) (err error) { *a.v, err = a.parse(s); return err }
func (a amount[T]) Type() string             { return "amount" }

func bytesFlag(v *skerry.Bytes) pflag.Value {
	return amount[skerry.Bytes]{v, skerry.ParseBytes, skerry.Bytes.String}
}

func cpuFlag(v *skerry.MilliCPU) pflag.Value {
	return amount[skerry.MilliCPU]{v, skerry.ParseMilliCPU, skerry.MilliCPU.String}
}

func mustDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "data directory: %w", err).WithHint("choose a writable one with --data")
	}
	return nil
}
