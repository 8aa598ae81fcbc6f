package parents

import (
	"context"
	"path/filepath"

	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/plugin"
)

// PluginShimCommand is the hidden command of this program that runs plugin.ShimMain.
const PluginShimCommand = "plugin-shim"

// PluginConfig sets up the scheduling plugins of a site, or of a root.
type PluginConfig struct {
	Dir string // of descriptions; empty: the site has none
	// Shim runs plugin.ShimMain; nil runs programs without a cage.
	Shim []string
	// CgroupParent is plugin.DefaultCgroupParent unless given.
	CgroupParent string
}

// open loads the plugins before anything is placed: one that rejects must not be missed.
func (p *PluginConfig) open(ctx context.Context, c *node.Common) (*plugin.Host, error) {
	if p.Dir == "" {
		return nil, nil
	}
	return plugin.Open(ctx, plugin.Options{Dir: p.Dir, Cache: filepath.Join(c.Dir, "plugins"), Shim: p.Shim, CgroupParent: p.CgroupParent,
		Log: c.Log})
}

// pluginHost is a plugin.Host as root and cluster know it: these packages do not know each other.
type pluginHost struct{ *plugin.Host }

func (h pluginHost) List() []questions.Plugin {
	var out []questions.Plugin
	for _, p := range h.Host.List() {
		out = append(out, questions.Plugin{Name: p.Name, All: p.All, Reject: p.Reject})
	}
	return out
}
