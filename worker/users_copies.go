//go:build linux

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/owners"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Where owners of files cannot be mapped in mounts, all containers of an organisation have the same users, and what
// they are to see belongs to these on the disk: copies of layers, which the image store makes, and volumes, whose files
// are given to them in place. A volume has a record of that. It goes back to the numbers that its users have inside for
// everything else: a container with the host's users, one whose mounts are mapped, another runtime, a snapshot.

// ownersFile is the record of a volume: beside what the containers see, or for those that end with the instance in its directory.
func ownersFile(s *Server, a *spec.Assignment, v *spec.Volume) owners.Record {
	if v.Local != nil {
		return ownersOf(s.claimDir(claimOf(a)), v.Name)
	}
	return owners.Record(filepath.Join(s.instanceDir(a.ID), "owners", v.Name))
}

// ownersOf is the record of a local volume.
func ownersOf(claimDir, volume string) owners.Record {
	return owners.Record(filepath.Join(claimDir, volume, "owners"))
}

// copied says whether a runtime must be given files that belong to a container's users already.
func copied(s *Server, driver string) bool {
	return s.runtimes.ability(driver, runtime.AbilityUserNSCopies)
}

// settleUsers chooses the users of a container whose spec is complete but for secrets, and gives them what it sees.
func settleUsers(ctx context.Context, server *Server, assigned *spec.Assignment, container *spec.Container, name string,
	spec *runtime.Spec, img artifact.Image) error {
	driver := runtimeOf(assigned)
	if err := server.runtimes.usersKnown(driver); err != nil {
		return err
	}
	shift := false
	if server.runtimes.ability(driver, runtime.AbilityUserNS) {
		shift = copied(server, driver)
		why, err := hostUsers(spec, container, assigned)
		if err == nil && why == "" && shift {
			why, err = beside(ctx, server, assigned, container, name)
		}
		switch {
		case err != nil:
			return err
		case why != "":
			server.opt.Log.Info("a container has the host's users", "instance", string(assigned.ID), "container", name, "why", why)
		case shift:
			spec.UserNS, err = server.users.organisation(assigned.Org)
		default:
			spec.UserNS, err = server.users.take(assigned.ID)
		}
		if err != nil {
			return err
		}
	}
	first := uint32(0)
	if shift && spec.UserNS != nil && len(spec.RootFS) > 0 {
		first = spec.UserNS.First
		if err := shiftRoot(ctx, server, spec, img, driver, first); err != nil {
			return err
		}
	}
	return settleVolumes(ctx, server, assigned, container, spec, first)
}

// shiftRoot puts copies of the layers into the place of an image's.
func shiftRoot(ctx context.Context, s *Server, spec *runtime.Spec, img artifact.Image, driver string, first uint32) error {
	lower, err := s.opt.Images.Copies.RootFS(ctx, img.Digest, platform(driver), first)
	if err == nil {
		spec.RootFS, err = rootFS(driver, lower)
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	spec.RootFS[0].Shifted = true
	return nil
}

// settleVolumes gives a container's volumes and files to its users: to those of the host from first on, or to the
// numbers that they have inside.
func settleVolumes(ctx context.Context, server *Server, assigned *spec.Assignment, container *spec.Container, svc *runtime.Spec,
	first uint32) error {
	shifted := func(source string) {
		for i := range svc.Mounts {
			if m := &svc.Mounts[i]; m.Source == source && first != 0 {
				m.Shifted = true
			}
		}
	}
	for i := range assigned.Spec.Volumes {
		v := &assigned.Spec.Volumes[i]
		if v.Outside() || !slices.ContainsFunc(container.Mounts, func(m spec.Mount) bool { return m.Volume == v.Name }) {
			continue
		}
		if err := settleVolume(ctx, server, assigned, v, first); err != nil {
			return volumeErr(v.Name, err)
		}
		shifted(server.volumeSource(assigned, v))
	}
	shifted(filepath.Join(server.instanceDir(assigned.ID), "run")) // the agent's, which anybody may read
	for n := range assigned.Spec.Config {
		file := server.configFile(assigned.ID, n)
		if st, err := os.Stat(file); err != nil {
			return fmt.Errorf("config %s: %w", assigned.Spec.Config[n].Path, err)
		} else if err := giveFile(file, st, first); err != nil {
			return fmt.Errorf("config %s: %w", assigned.Spec.Config[n].Path, err)
		}
		shifted(file)
	}
	return nil
}

// giveFile gives a file to a user and group, which takes a write only where it is another's.
func giveFile(file string, st fs.FileInfo, first uint32) error {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid == first {
		return nil
	}
	return errors.Join(os.Lchown(file, int(first), int(first)), os.Chmod(file, st.Mode().Perm()))
}

// settleVolume gives a volume to users, unless it is theirs already.
func settleVolume(ctx context.Context, server *Server, assigned *spec.Assignment, v *spec.Volume, first uint32) error {
	dir, r := server.volumeSource(assigned, v), ownersFile(server, assigned, v)
	if ok, err := r.Settled(dir, first); ok || err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(string(r)), 0o755); err != nil {
		return err
	}
	unlock, err := r.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if ok, err := r.Settled(dir, first); ok || err != nil {
		return err
	}
	by, err := writerOf(ctx, server, claimOf(assigned), v.Name)
	if err != nil {
		return err
	}
	if by != "" {
		return &runtime.StartError{Field: "volumes", Err: fmt.Errorf("container %s, which runs, has it with other users, and this worker cannot map owners of files", by),
			Hint: fmt.Sprintf("restart the instance (`skerry restart`), or give containers that share the volume %s the same users", v.Name)}
	}
	began := time.Now()
	if err := r.Settle(ctx, dir, first); err != nil {
		return fmt.Errorf("give it to users from %d: %w", first, err)
	}
	server.opt.Log.Info("the files of a volume have other owners now", "instance", string(assigned.ID), "volume", v.Name, "users", first,
		"took", time.Since(began))
	return nil
}

// writerOf gives a running container that has a volume of a replica, "" where there is none.
func writerOf(ctx context.Context, s *Server, claim spec.VolumeClaim, volume string) (string, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) (by string, _ error) {
		for v := range core.All(c) {
			if claimOf(v.Assignment()) != claim {
				continue
			}
			for name := range v.Running() {
				if k, _ := containerOf(&v.Assignment().Spec, name); k != nil && mounts(k, volume) {
					by = name
				}
			}
		}
		return by, nil
	})
}

func mounts(k *spec.Container, volume string) bool {
	return slices.ContainsFunc(k.Mounts, func(m spec.Mount) bool { return m.Volume == volume })
}

// beside says why a container has the host's users because another one that runs beside it has, "" where none does:
// they share a volume, and its files have one owner on the disk.
func beside(ctx context.Context, server *Server, assigned *spec.Assignment, container *spec.Container, name string) (string, error) {
	if slices.ContainsFunc(assigned.Spec.Init, func(c spec.SideContainer) bool { return c.Name == name }) {
		return "", nil // it has the volumes for itself
	}
	others := []string{spec.MainContainer}
	for i := range assigned.Spec.Sidecars {
		others = append(others, assigned.Spec.Sidecars[i].Name)
	}
	for _, other := range others {
		o, _ := containerOf(&assigned.Spec, other)
		i := slices.IndexFunc(container.Mounts, func(m spec.Mount) bool { return mounts(o, m.Volume) && !isHost(&assigned.Spec, m.Volume) })
		if other == name || i < 0 {
			continue
		}
		why, err := hostUsersOf(ctx, server, assigned, other)
		if err != nil {
			return "", err
		}
		if why != "" {
			return fmt.Sprintf("it shares the volume %s with %s, which has them (%s), and owners of files cannot be mapped here",
				container.Mounts[i].Volume, other, why), nil
		}
	}
	return "", nil
}

// hostUsersOf says why a container has the host's users, by its manifest and, if that is here, its image.
func hostUsersOf(ctx context.Context, server *Server, assigned *spec.Assignment, name string) (string, error) {
	container, _ := containerOf(&assigned.Spec, name)
	driver := runtimeOf(assigned)
	svc := runtime.Spec{User: container.User, Privileged: container.Security.Privileged}
	if name == spec.MainContainer {
		if d := server.runtimes.named[driver]; d != nil && assigned.Spec.Checkpoints() {
			_, err := checkpointer(ctx, d)
			svc.Checkpoint = err == nil
		}
		if err := server.attach.apply(&svc, &assigned.Spec, assigned.Devices); err != nil {
			return "", err
		}
	}
	if r, err := imageref.Parse(assigned.Digest[container.Image]); err == nil && server.opt.Images != nil {
		if img, err := server.opt.Images.Image(r.Digest, platform(driver)); err == nil {
			svc.User = cmp.Or(svc.User, img.User)
		}
		if lower, err := server.opt.Images.RootFS(ctx, r.Digest, platform(driver)); err == nil {
			svc.RootFS, _ = rootFS(driver, lower)
		}
	}
	why, err := hostUsers(&svc, container, assigned)
	if _, invalid := errors.AsType[*runtime.InvalidSpec](err); invalid {
		return "", nil // it will not start
	}
	return why, err
}

// prepareCopies makes copies of an image's layers before a container is started that will need them: that takes time.
func prepareCopies(ctx context.Context, s *Server, a *spec.Assignment, ref string, d digest.Digest) error {
	if !copied(s, runtimeOf(a)) {
		return nil
	}
	for _, name := range containersOf(&a.Spec) {
		if k, _ := containerOf(&a.Spec, name); k.Image != ref {
			continue
		}
		if why, err := hostUsersOf(ctx, s, a, name); why != "" || err != nil {
			continue // an error comes again when it starts
		}
		users, err := s.users.organisation(a.Org)
		if err == nil {
			_, err = s.opt.Images.Copies.RootFS(ctx, d, platform(runtimeOf(a)), users.First)
		}
		return err
	}
	return nil
}

// containersOf lists the containers of a service.
func containersOf(svc *spec.ServiceSpec) []string {
	out := []string{spec.MainContainer}
	for _, list := range [][]spec.SideContainer{svc.Init, svc.Sidecars} {
		for i := range list {
			out = append(out, list[i].Name)
		}
	}
	return out
}

func isHost(svc *spec.ServiceSpec, volume string) bool {
	return slices.ContainsFunc(svc.Volumes, func(v spec.Volume) bool { return v.Name == volume && v.Outside() })
}

// heldUsers gives the first users of all ranges that files on the disk have.
func heldUsers(s *Server) (out []uint32) {
	for _, pattern := range []string{localDir + "/*/*/*/*/*/owners", "instances/*/owners/*"} {
		files, _ := filepath.Glob(filepath.Join(s.opt.Dir, pattern))
		for _, file := range files {
			if strings.HasPrefix(filepath.Base(file), ".") { // a part of a record that was being written
				continue
			}
			ranges, err := owners.Record(file).Ranges()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.opt.Log.Warn("which users a volume belongs to", "err", err)
			}
			out = append(out, ranges...)
		}
	}
	if s.opt.Images != nil {
		out = append(out, s.opt.Images.Copies.Users()...)
	}
	return out
}

// pruneUsers removes copies of layers that no instance of their organisation needs, and forgets the users of
// organisations of which nothing is left.
func pruneUsers(ctx context.Context, server *Server, before time.Time) {
	began := time.Now()
	byOrg := map[string][]digest.Digest{}
	here := map[string]bool{}
	err := server.Role.View(ctx, func(c loop.Core) {
		for v := range core.All(c.(*core.Core)) {
			org := v.Assignment().Org
			here[org] = true
			for d := range v.Images() {
				byOrg[org] = append(byOrg[org], imageDigest(d))
			}
		}
	})
	if err != nil {
		return
	}
	inUse := map[uint32][]digest.Digest{}
	for org, first := range server.users.organisations() {
		inUse[first] = byOrg[org]
	}
	freed, err := server.opt.Images.Copies.Drop(inUse, before)
	if freed > 0 {
		server.opt.Log.Info("copies of layers removed", "bytes", freed)
	}
	if err = errors.Join(err, server.users.release(here, began)); err != nil {
		server.opt.Log.Warn("remove copies of layers", "err", err)
	}
}
