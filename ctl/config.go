package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Config is the client's file: the servers that the user knows, with the tokens for them.
type Config struct {
	Current  string     `json:"current,omitempty"`
	Contexts []*Context `json:"contexts"`
}

// Context is one server as a user. Without CAPin and CAFile the machine's own certificate authorities are trusted.
type Context struct {
	Name      string    `json:"name"`
	Server    string    `json:"server"`
	CAPin     string    `json:"caPin,omitempty"`
	CAFile    string    `json:"caFile,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	User      string    `json:"user,omitempty"`
	Access    string    `json:"access,omitempty"`  // of a login, for minutes
	Expires   time.Time `json:"expires,omitzero"`  // of Access
	Refresh   string    `json:"refresh,omitempty"` // of a login, for the next pair
	Token     string    `json:"token,omitempty"`   // an access token, in place of a login
}

// Find gives the context of a name, or nil.
func (c *Config) Find(name string) *Context {
	for _, x := range c.Contexts {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// Put adds a context, or replaces the one of its name.
func (c *Config) Put(x *Context) {
	if i := slices.IndexFunc(c.Contexts, func(y *Context) bool { return y.Name == x.Name }); i >= 0 {
		c.Contexts[i] = x
		return
	}
	c.Contexts = append(c.Contexts, x)
}

// Remove takes a context away and reports whether it was there.
func (c *Config) Remove(name string) bool {
	n := len(c.Contexts)
	c.Contexts = slices.DeleteFunc(c.Contexts, func(x *Context) bool { return x.Name == name })
	if c.Current == name {
		c.Current = ""
	}
	return len(c.Contexts) < n
}

// ConfigPath is where the file is: $SKERRY_CONFIG, else skerry/config.yaml in the user's configuration directory.
func ConfigPath() (string, error) {
	if p := os.Getenv("SKERRY_CONFIG"); p != "" {
		return p, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", skerry.Errorf(skerry.CodeInvalid, "no location for the configuration file: %w", err).
				WithHint("set the environment variable SKERRY_CONFIG")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "skerry", "config.yaml"), nil
}

// LoadConfig reads the file; one that does not exist is empty.
func LoadConfig(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &Config{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseConfig(path, data)
}

func parseConfig(path string, data []byte) (*Config, error) {
	c := &Config{}
	if len(bytes.TrimSpace(data)) == 0 {
		return c, nil
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "the configuration %s is not valid: %w", path, err).
			WithHint("fix it, or remove it and log in again")
	}
	if p := spec.DecodeStrict(j, c); len(p) > 0 {
		return nil, &skerry.Error{Code: skerry.CodeInvalid, Message: "the configuration " + path + " is not valid", Problems: p}
	}
	seen := map[string]bool{}
	for i, x := range c.Contexts {
		if x == nil || x.Name == "" || seen[x.Name] {
			return nil, skerry.Errorf(skerry.CodeInvalid, "the configuration %s is not valid: contexts[%d] has no unique name", path, i)
		}
		seen[x.Name] = true
	}
	return c, nil
}

// UpdateConfig changes the file while no other command does. The file appears whole or not at all, and only its owner
// may read it.
func UpdateConfig(path string, change func(*Config) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer unlock()
	conf, err := LoadConfig(path)
	if err != nil {
		return err
	}
	if err := change(conf); err != nil {
		return err
	}
	data, err := yaml.Marshal(conf)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".config-") // it is made for the owner only
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// chosen gives the context that a command works with: by flag, environment, or the current one. SKERRY_SERVER makes one
// without a file.
func (a *app) chosen() (*Context, error) {
	if server := os.Getenv("SKERRY_SERVER"); server != "" && a.contextName == "" {
		x := &Context{Server: server, CAPin: os.Getenv("SKERRY_CA_PIN"), CAFile: os.Getenv("SKERRY_CA_FILE"), Token: os.Getenv("SKERRY_TOKEN")}
		return x, nil
	}
	path, err := ConfigPath()
	if err != nil {
		return nil, err
	}
	conf, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	name := a.contextName
	if name == "" {
		name = os.Getenv("SKERRY_CONTEXT")
	}
	if name == "" {
		name = conf.Current
	}
	if name == "" {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "no server is selected").
			WithHint("log in with `skerry login SERVER`; `skerry context list` lists the known servers")
	}
	x := conf.Find(name)
	if x == nil {
		var names []string
		for _, y := range conf.Contexts {
			names = append(names, y.Name)
		}
		hint := "`skerry login SERVER --context " + name + "` makes it"
		if len(names) > 0 {
			hint = "known contexts: " + strings.Join(names, ", ")
		}
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no context %q", name).WithHint("%s", hint)
	}
	if t := os.Getenv("SKERRY_TOKEN"); t != "" {
		x.Token = t
	}
	return x, nil
}

// namespace is what names without one are in.
func (a *app) namespace() string {
	switch {
	case a.space != "":
		return a.space
	case os.Getenv("SKERRY_NAMESPACE") != "":
		return os.Getenv("SKERRY_NAMESPACE")
	}
	if x, err := a.chosen(); err == nil && x.Namespace != "" {
		return x.Namespace
	}
	return spec.DefaultNamespace
}
