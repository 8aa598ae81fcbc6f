package role

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/node"
)

// envPrefix begins the environment variables that stand in for flags of role commands: --log-level is SKERRY_LOG_LEVEL.
const envPrefix = "SKERRY_"

// EnvName gives the environment variable that stands in for a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnv fills flags that were not given from the environment. Flags that mean something else to client commands of the
// same process do not exist on role commands.
func FromEnv(cmd *cobra.Command) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || first != nil || f.Name == "help" {
			return
		}
		key := EnvName(f.Name)
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

// CommonFlags are those of every role.
type CommonFlags struct {
	Data, Store, LogFormat, LogLevel string
	Telemetry                        TelemetryFlags
}

// Add declares them; without --data, the data directory is that of the role below DefaultData.
func (f *CommonFlags) Add(fs *pflag.FlagSet, role string) {
	fs.StringVar(&f.Data, "data", filepath.Join(DefaultData(), role), "data directory")
	fs.StringVar(&f.Store, "store", "",
		"store: sqlite:FILE, memory: or etcd://HOST:PORT,HOST:PORT/PREFIX (default a SQLite file in the data directory); of several processes with one etcd prefix, one leads and the others stand by")
	f.AddLog(fs)
}

// AddLog declares those of the log and of telemetry alone.
func (f *CommonFlags) AddLog(fs *pflag.FlagSet) {
	fs.StringVar(&f.LogFormat, "log-format", "text", "text or json")
	fs.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.Telemetry.add(fs)
}

// Logger makes the log that the flags describe.
func (f *CommonFlags) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--log-level %q is not a level", f.LogLevel).WithHint("use debug, info, warn or error")
	}
	opt := &slog.HandlerOptions{Level: level}
	switch f.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opt)), nil
	case "json":
		opt.ReplaceAttr = withUnit
		return slog.New(slog.NewJSONHandler(os.Stderr, opt)), nil
	}
	return nil, skerry.Errorf(skerry.CodeInvalid, "--log-format %q is not a format", f.LogFormat).WithHint("use text or json")
}

// withUnit writes a duration as 1.5s, as the text format does: a bare number of nanoseconds says nothing of its unit.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// Common gives what every role is given, with the version of the program.
func (f *CommonFlags) Common(version string) (node.Common, error) {
	log, err := f.Logger()
	c := node.Common{Dir: f.Data, StoreURL: f.Store, Version: version, Log: log}
	if err == nil {
		c.Telemetry, err = f.Telemetry.exporter(version, log)
	}
	if c.Telemetry != nil {
		c.Log = slog.New(c.Telemetry.Tee(log.Handler()))
	}
	return c, err
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

func (a amount[T]) Type() string { return "amount" }

// BytesFlag is a flag of an amount of bytes, such as 16Gi.
func BytesFlag(v *skerry.Bytes) pflag.Value {
	return amount[skerry.Bytes]{v, skerry.ParseBytes, skerry.Bytes.String}
}

// CPUFlag is a flag of an amount of CPU, such as 0.5.
func CPUFlag(v *skerry.MilliCPU) pflag.Value {
	return amount[skerry.MilliCPU]{v, skerry.ParseMilliCPU, skerry.MilliCPU.String}
}

// MustDir makes a data directory, unless it is there.
func MustDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "data directory: %w", err).WithHint("choose a writable one with --data")
	}
	return nil
}
