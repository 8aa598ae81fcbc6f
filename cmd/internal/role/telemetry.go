package role

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/otlp"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
)

// TelemetryFlags say to which OpenTelemetry collector a role pushes.
type TelemetryFlags struct {
	endpoint, headers, ca string
	interval              time.Duration
}

func (f *TelemetryFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.endpoint, "otlp", "",
		"OpenTelemetry collector to which metrics, logs and traces are pushed, by OTLP over HTTP, such as http://127.0.0.1:4318 (default: none)")
	fs.StringVar(&f.headers, "otlp-headers", "",
		"file with headers for the collector, NAME: VALUE in each line, such as a token; only its owner may read it")
	fs.StringVar(&f.ca, "otlp-ca", "", "file with the authorities of the collector's certificate (PEM; default: those of the system)")
	fs.DurationVar(&f.interval, "otlp-interval", time.Minute, "time between two pushes of metrics, 1s to 1h")
}

// exporter makes what the flags describe, or nothing.
func (f *TelemetryFlags) exporter(version string, log *slog.Logger) (*otlp.Exporter, error) {
	if f.endpoint == "" {
		if f.headers != "" || f.ca != "" {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers and --otlp-ca are for a collector").WithHint("name it with --otlp")
		}
		return nil, nil
	}
	if f.interval < time.Second || f.interval > time.Hour {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-interval %s is not 1s to 1h", f.interval)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	opt := otlp.Options{Endpoint: f.endpoint, Interval: f.interval, Log: log, Resource: map[string]string{"service.name": "skerry",
		"service.version": version, "host.name": host}}
	if opt.Headers, err = f.readHeaders(); err != nil {
		return nil, err
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-ca: %w", err)
		}
		if opt.CAs = x509.NewCertPool(); !opt.CAs.AppendCertsFromPEM(pem) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-ca %s has no certificate", f.ca)
		}
	}
	out, err := otlp.New(opt)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp: %w", err)
	}
	return out, nil
}

// readHeaders reads the headers, which a collector that is not on this machine gets by https alone.
func (f *TelemetryFlags) readHeaders() (map[string]string, error) {
	if f.headers == "" {
		return nil, nil
	}
	if u, err := url.Parse(f.endpoint); err == nil && u.Scheme == "http" {
		if a, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !a.IsLoopback()) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers would be sent to %s without encryption", f.endpoint).
				WithHint("use https")
		}
	}
	st, err := os.Stat(f.headers)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers: %w", err)
	}
	if runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers %s: others may read it, and it has secrets", f.headers).
			WithHint("chmod 600 %s", f.headers)
	}
	text, err := os.ReadFile(f.headers)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers: %w", err)
	}
	headers := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--otlp-headers %s: a line is not NAME: VALUE", f.headers)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// Telling is what a role pushes of itself.
type Telling struct {
	Tier      wire.Tier
	Name      string
	Metrics   otlp.Metrics
	Journal   *journal.Journal
	Instances func(context.Context) ([]wire.Instance, error)
}

// StartTelemetry pushes for a role, if it is to. It is to be started before the role, and so ends after it.
func StartTelemetry(svc *Service, c *node.Common) {
	if c.Telemetry != nil {
		svc.Start("telemetry", c.Telemetry.Run)
	}
}

// Tell has a role's metrics and deployments pushed from now on.
func Tell(svc *Service, c *node.Common, t Telling) {
	if c.Telemetry == nil {
		return
	}
	c.Telemetry.Describe(string(t.Tier), t.Name)
	c.Telemetry.Measure(t.Metrics)
	deployments := c.Telemetry.Deployments(t.Tier, t.Name)
	svc.Start("deployments", func(ctx context.Context) error { return deployments.Follow(ctx, t.Journal, t.Instances) })
}
