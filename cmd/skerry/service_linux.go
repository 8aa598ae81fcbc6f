package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/packaging"
)

const (
	upUnit      = "skerry.service"
	upSettings  = "/etc/skerry/up.env" // of which the unit reads its flags
	localUnits  = "/etc/systemd/system"
	localBinary = "/usr/local/bin/skerry"
)

// service has systemd run all roles, from the start of the machine on.
type service struct {
	root string // of the machine's files; empty outside of tests
	out  io.Writer
}

func (s *service) systemctl(ctx context.Context, args ...string) (string, error) {
	if s.root != "" {
		args = append([]string{"--root=" + s.root}, args...)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return strings.TrimSpace(said.String()), err
}

// install puts the program, its units and the flags that were given where systemd finds them, and enables the unit. changed reports
// whether what runs has to be started anew to go by them.
func (s *service) install(ctx context.Context, program string, flags *pflag.FlagSet) (changed bool, err error) {
	settings, err := settingsOf(flags)
	if err != nil {
		return false, err
	}
	for _, unit := range []string{"skerry-root", "skerry-cluster", "skerry-worker"} {
		_, err := s.systemctl(ctx, "--quiet", "is-enabled", unit)
		if err != nil && s.root == "" {
			_, err = s.systemctl(ctx, "--quiet", "is-active", unit)
		}
		if err == nil {
			return false, skerry.Errorf(skerry.CodeConflict, "%s.service is enabled or runs on this machine, with the same directories", unit).
				WithHint("to run all roles in one process in its place: systemctl disable --now skerry-root skerry-cluster skerry-worker")
		}
	}
	packaged, err := s.packaged(program)
	if err != nil {
		return false, err
	}
	if !packaged {
		if changed, err = s.copyProgram(program); err != nil {
			return false, err
		}
		units, err := s.writeUnits()
		if err != nil {
			return false, err
		}
		changed = changed || units
	}
	if settings != nil {
		fresh, err := s.write(upSettings, settings, 0o600)
		if err != nil {
			return false, err
		}
		changed = changed || fresh
	}
	if s.root == "" {
		if text, err := s.systemctl(ctx, "daemon-reload"); err != nil {
			return false, skerry.Errorf(skerry.CodeInternal, "systemctl daemon-reload: %w: %s", err, text)
		}
	}
	if text, err := s.systemctl(ctx, "--quiet", "enable", upUnit); err != nil {
		return false, skerry.Errorf(skerry.CodeConflict, "systemctl enable %s: %w: %s", upUnit, err, text)
	}
	return changed, nil
}

// packaged reports whether a package, or make install, brought a unit for this program.
func (s *service) packaged(program string) (bool, error) {
	for _, dir := range []string{"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		text, err := os.ReadFile(s.root + path.Join(dir, upUnit))
		if err != nil {
			continue
		}
		if !bytes.Contains(text, []byte("\nExecStart="+program+" ")) {
			return false, skerry.Errorf(skerry.CodeConflict, "%s is of another program than %s", path.Join(dir, upUnit), program).
				WithHint("run that one, or remove what brought it")
		}
		first := path.Join(localUnits, upUnit) // systemd takes it in place of the other; empty: masked, which `enable` tells
		if text, err := os.ReadFile(s.root + first); err == nil && len(text) > 0 && !bytes.Contains(text, []byte("\nExecStart="+program+" ")) {
			return false, skerry.Errorf(skerry.CodeConflict, "%s is of another program than %s, and goes before %s", first, program,
				path.Join(dir, upUnit)).WithHint("remove it if `skerry up --service` of an earlier program wrote it, and try again")
		}
		return true, nil
	}
	return false, nil
}

// copyProgram puts the program where the units have it, so that a directory in which it was built, or to which it was downloaded, may go.
func (s *service) copyProgram(program string) (changed bool, err error) {
	if program == localBinary {
		return false, nil // outdated tells whether another one runs
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return false, err
	}
	to := s.root + localBinary
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return false, err
	}
	fmt.Fprintf(s.out, "%s is copied to %s.\n", program, localBinary)
	return true, files.Program(to, bytes.NewReader(data), 0o755)
}

func (s *service) writeUnits() (changed bool, err error) {
	for _, name := range []string{upUnit, "skerry-workloads.service", "skerry.slice"} {
		text, err := packaging.Units.ReadFile("systemd/" + name)
		if err != nil {
			return false, err
		}
		fresh, err := s.write(path.Join(localUnits, name), text, 0o644)
		if err != nil {
			return false, err
		}
		changed = changed || fresh
	}
	return changed, nil
}

// write puts a file there, and reports whether it was another before.
func (s *service) write(file string, data []byte, mode fs.FileMode) (changed bool, err error) {
	file = s.root + file
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return false, err
	}
	return true, files.Replace(file, data, mode)
}

// outdated reports whether a process of the unit is of a file that another has taken the place of, or has other settings than those that
// are written: whoever brought them did not start it anew.
func (s *service) outdated(pid string) bool {
	exe := path.Join("/proc", pid, "exe")
	runs, err := os.Stat(exe)
	file, unknown := os.Readlink(exe)
	if err != nil || unknown != nil {
		return false
	}
	if now, err := os.Stat(strings.TrimSuffix(file, " (deleted)")); err == nil && !os.SameFile(now, runs) {
		return true
	}
	has, err := os.ReadFile(path.Join("/proc", pid, "environ"))
	settings, unread := s.settings()
	if err != nil || unread != nil { // settled tells
		return false
	}
	env := strings.Split(string(has), "\x00")
	for name, value := range settings {
		if !slices.Contains(env, name+"="+value) {
			return true
		}
	}
	return false
}

// run starts the unit, or starts it anew if something changed, and returns when all roles work.
func (s *service) run(ctx context.Context, changed bool) error {
	verb := "start"
	if !changed && s.root == "" {
		pid, err := s.systemctl(ctx, "show", "--property", "MainPID", "--value", upUnit)
		changed = err == nil && s.outdated(pid)
	}
	if changed {
		verb = "restart"
	}
	text, err := s.systemctl(ctx, verb, upUnit)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	log, _ := exec.CommandContext(ctx, "journalctl", "--unit", upUnit, "--lines", "10", "--output", "cat", "--no-pager").Output()
	return skerry.Errorf(skerry.CodeUnavailable, "%s did not start: %s\n%s", upUnit, text, bytes.TrimSpace(log)).
		WithHint("`journalctl -u skerry` has more; `skerry up --service` with other flags starts it again")
}

// needSystemd says that this machine has no systemd to run a service.
func needSystemd() error {
	if st, err := os.Stat("/run/systemd/system"); err != nil || !st.IsDir() {
		return skerry.Errorf(skerry.CodeUnsupported, "systemd does not run on this machine, so that there is nothing to start Skerry with it").
			WithHint("have what starts services here run `skerry up`: it stays in the foreground, and ends at SIGTERM")
	}
	return nil
}

// pathFlags are those whose values are files and directories.
var pathFlags = []string{"admission", "api-cert", "api-key", "cdi", "containerd", "data", "device-file", "guest-kernel",
	"oakestra-api-admin", "oidc", "otlp-ca", "otlp-headers", "plugins", "registry-config", "run-dir", "snapshot-places"}

// settingsOf writes the flags that were given as the environment of the unit, or nothing if there were none: then earlier ones hold.
func settingsOf(flags *pflag.FlagSet) ([]byte, error) {
	var out bytes.Buffer
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || wrong != nil || f.Name == "service" || f.Name == "add-context" {
			return
		}
		value, err := settingOf(f)
		if err != nil {
			wrong = err
			return
		}
		fmt.Fprintf(&out, "%s=\"%s\"\n", role.EnvName(f.Name), settingEscaper.Replace(value))
	})
	if wrong != nil || out.Len() == 0 {
		return nil, wrong
	}
	return append([]byte("# The flags of `skerry up --service`, which writes this anew if it is given any.\n"), out.Bytes()...), nil
}

// settled fills the flags that were not given from those that the service has.
func (s *service) settled(cmd *cobra.Command) error {
	settings, err := s.settings()
	if err != nil {
		return err
	}
	for name, value := range settings {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return role.FromEnv(cmd)
}

// settings reads what was written of flags.
func (s *service) settings() (map[string]string, error) {
	text, err := os.ReadFile(s.root + upSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	settings, err := dotenv.UnmarshalBytesWithLookup(text, nil)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%s: %w", upSettings, err)
	}
	return settings, nil
}

// settingEscaper escapes what has a meaning between double quotes.
var settingEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`)

func settingOf(flag *pflag.Flag) (string, error) {
	values := []string{flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	for i, value := range values {
		if strings.ContainsAny(value, "\n\r\x00") {
			return "", skerry.Errorf(skerry.CodeInvalid, "--%s has a line break, which no setting of a service can have", flag.Name)
		}
		// The service is in no directory that its caller knows.
		if slices.Contains(pathFlags, flag.Name) && value != "" && !filepath.IsAbs(value) {
			abs, err := filepath.Abs(value)
			if err != nil {
				return "", err
			}
			values[i] = abs
		}
	}
	switch flag.Value.Type() {
	case "stringSlice":
		var line strings.Builder
		w := csv.NewWriter(&line)
		if err := w.Write(values); err != nil {
			return "", err
		}
		w.Flush()
		return strings.TrimSuffix(line.String(), "\n"), w.Error()
	case "stringArray":
		if len(values) > 1 {
			return "", skerry.Errorf(skerry.CodeUnsupported, "--%s can be given once with --service", flag.Name)
		}
	}
	return values[0], nil
}

// asService has systemd run what `skerry up` runs, and tells how to go on.
func (f *upFlags) asService(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if err := needSystemd(); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	units := &service{out: cmd.OutOrStdout()}
	changed, err := units.install(ctx, program, cmd.Flags())
	if err != nil {
		return err
	}
	if err := units.run(ctx, changed); err != nil {
		return err
	}
	if err := units.settled(cmd); err != nil {
		return err
	}
	var root, site role.Status
	if err := role.CallLocal(ctx, filepath.Join(f.data, "root"), "GET", "/status", nil, &root); err != nil {
		return err
	}
	if err := role.CallLocal(ctx, filepath.Join(f.data, "cluster"), "GET", "/status", nil, &site); err != nil {
		return err
	}
	fmt.Fprintf(units.out, "%s is enabled: it starts with the machine. `systemctl stop skerry` ends its agent, "+
		"`systemctl disable --now skerry skerry-workloads` everything.\n\n", upUnit)
	return f.welcome(cmd, server{root.API, root.Pin}, server{site.API, site.Pin})
}
