//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/nfsmount"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
)

// Exports of NFS servers are below the worker's directory, and who has them is in the directories of instances:
//
//	nfs/KEY                             what is mounted
//	instances/INSTANCE/nfs/VOLUME       KEY
const nfsDir = "nfs"

func (pl places) nfsDir() string { return filepath.Join(pl.dir, nfsDir) }

func (pl places) nfsRecord(id skerry.InstanceID, volume string) string {
	return filepath.Join(pl.instanceDir(id), nfsDir, volume)
}

func hasNFS(instance string) bool {
	_, err := os.Stat(filepath.Join(instance, nfsDir))
	return err == nil
}

// NFSOptions say what instances may have mounted of NFS servers.
type NFSOptions struct {
	Allowed []spec.NFSGrant // none: nothing
	Helper  []string        // the command that runs nfsmount.Main

	table *nfsmount.Table
}

func (n *NFSOptions) open(dir string) { n.table = nfsTable(dir, nfsmount.Helper(n.Helper)) }

func nfsTable(dir string, system nfsmount.System) *nfsmount.Table {
	return nfsmount.New(places{dir}.nfsDir(), filepath.Join(dir, "instances", "*", nfsDir, "*"), system)
}

// mount mounts what the operator of this worker allows.
func (n *NFSOptions) mount(ctx context.Context, v *spec.NFSVolume, record string) error {
	if err := v.Check(); err != nil {
		return impossible(err.Error())
	}
	if !slices.ContainsFunc(n.Allowed, func(g spec.NFSGrant) bool { return g.Covers(v) }) {
		return impossible(fmt.Sprintf("this worker does not mount %s: its operator may allow it with --nfs %s", v.Source(), v.Source()))
	}
	return n.table.Mount(ctx, v, record)
}

// sweep unmounts, apart, what no instance has any more. Nothing waits for it: a server may be away.
func (n *NFSOptions) sweep(work *tier.Work, log *slog.Logger) {
	work.Go(func() {
		if err := n.table.Sweep(work.Ctx); err != nil && work.Ctx.Err() == nil {
			log.Warn("unmount what no instance has any more; it is tried again when the next one ends", "err", err)
		}
	})
}

// UnmountNFS takes away what a worker has mounted of NFS servers, once nothing runs any more. command runs nfsmount.Main. The directory goes,
// too: a helper that was given up would mount late, below what is then deleted.
func UnmountNFS(ctx context.Context, dir string, command []string) error {
	err := nfsTable(dir, nfsmount.Helper(command)).Clean(ctx)
	return errors.Join(err, files.RemoveUnmounted(places{dir}.nfsDir()))
}
