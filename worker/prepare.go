//go:build linux

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// runtimeOf gives the runtime of an instance: the one that its cluster chose; where that is of before and chose none, the cheapest.
func runtimeOf(a *spec.Assignment) string {
	if a.Runtime != "" {
		return a.Runtime
	}
	for _, r := range a.Spec.Runtimes() {
		if !strings.Contains(r, "/") { // such a cluster knows no classes
			return r
		}
	}
	return a.Spec.Runtime
}

// prepare fetches images and makes volumes, and joins the network meanwhile. It may be repeated at any time. One that fails leaves no
// network that was not there before.
func (s *Server) prepare(ctx context.Context, p core.Prepare) core.Prepared {
	assigned := &p.A
	m := core.Prepared{ID: assigned.ID, Fence: assigned.Fence, Runtime: runtimeOf(assigned)}
	fail := func(err error) core.Prepared {
		m.Err, m.Permanent = err.Error(), permanent(err)
		return m
	}
	if s.runtimes.named[m.Runtime] == nil {
		return fail(impossible("this worker has no runtime " + m.Runtime))
	}
	if !assigned.Spec.Honours(m.Runtime) { // a cluster of before that knows no classes
		return fail(impossible("runtime " + m.Runtime + " is not of the isolation or class that the service asks for"))
	}
	var attached wire.Attachment
	joined := s.net.wanted(assigned.ID)
	err := atOnce(ctx, s, func(ctx context.Context) (err error) {
		m.Digest, err = prepareFiles(ctx, s, assigned)
		return err
	}, func(ctx context.Context) (err error) {
		if m.Ports, attached, err = s.net.add(ctx, assigned, p.Keep); err != nil {
			return fmt.Errorf("network: %w", err)
		}
		return nil
	})
	if err == nil {
		m.Recipient, err = checkpoints{s}.recipient(assigned)
	}
	if err != nil {
		if !joined { // whoever waits for an image that cannot be had holds no address and no port
			if e := s.net.remove(context.WithoutCancel(ctx), assigned.ID); e != nil {
				s.opt.Log.Warn("release the network", "instance", string(assigned.ID), "err", e)
			}
		}
		m.Ports = nil
		return fail(err)
	}
	if len(attached.Addresses) > 0 {
		m.Address = attached.Addresses[0].Addr().String()
	}
	return m
}

// atOnce does parts of a preparation at the same time, and returns when all have ended. The first that fails has the others cancelled, and
// its error counts.
func atOnce(ctx context.Context, s *Server, parts ...func(context.Context) error) error {
	group, all := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() (err error) {
			if bug := s.caught(func() { err = part(all) }); bug != nil {
				return impossible(bug.Error())
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err() // a part that cannot be cancelled may have ended well
}

// prepareFiles brings onto this machine what an instance reads and writes, and gives the digest of its image.
func prepareFiles(ctx context.Context, s *Server, assigned *spec.Assignment) (main string, err error) {
	if err := s.secrets.fetch(ctx, assigned); err != nil { // first: the link may not last as long as an image takes
		return "", err
	}
	for _, ref := range assigned.Spec.Images() {
		img, _, err := s.image(ctx, assigned, ref)
		if err == nil {
			err = prepareCopies(ctx, s, assigned, ref, img.Digest)
		}
		if err != nil {
			return "", fmt.Errorf("image %s: %w", ref, err)
		}
		if ref == assigned.Spec.Image {
			main = string(img.Digest)
		}
	}
	return main, s.makeFiles(ctx, assigned)
}

// platform is what an image must be built for to run in a runtime.
func platform(runtime string) artifact.Platform {
	switch runtime {
	case spec.RuntimeWasm:
		return artifact.WasmPlatform()
	case spec.RuntimeUnikernel:
		return artifact.BarePlatform(artifact.HostPlatform())
	}
	return artifact.HostPlatform()
}

// image brings an image onto this machine, whole, and gives the folders of its layers, topmost first. One that is here already needs no
// link.
func (s *Server) image(ctx context.Context, assigned *spec.Assignment, ref string) (img artifact.Image, layers []string, err error) {
	pinned := assigned.Digest[ref]
	platform := platform(runtimeOf(assigned))
	src := s.source.Load()
	if src == nil {
		src = &artifact.Source{Guard: &artifact.Guard{}}
	}
	var damage error
	if pinned != "" {
		r, err := imageref.Parse(pinned)
		if err == nil {
			err = checkSigned(ctx, s.opt.Images, assigned, r, src)
		}
		if err != nil {
			return img, nil, err
		}
		img, err := artifact.Proven(s.opt.Images, r, platform)
		if err == nil {
			if layers, err = artifact.Unpack(ctx, s.opt.Images, img); err == nil {
				return img, layers, nil
			}
		}
		damage = err
	} else {
		pinned = ref
	}
	img, err = s.opt.Images.Pull(ctx, pinned, platform, nil, src)
	if r, bad := imageref.Parse(pinned); err == nil && assigned.Digest[ref] == "" {
		r.Tag, r.Digest = "", img.Digest
		pinned = r.String() // whatever its tag means the next time
		err = errors.Join(bad, checkSigned(ctx, s.opt.Images, assigned, r, src))
	}
	if err != nil {
		return img, nil, err
	}
	if layers, err = artifact.Unpack(ctx, s.opt.Images, img); errors.Is(err, artifact.ErrDamaged) {
		damage = err
		if img, err = s.opt.Images.Pull(ctx, pinned, platform, nil, src); err == nil {
			layers, err = artifact.Unpack(ctx, s.opt.Images, img)
		}
	}
	if err == nil && errors.Is(damage, artifact.ErrDamaged) {
		s.Post(core.ImageMended{ID: assigned.ID, Text: fmt.Sprintf("image %s was damaged on the disk of this worker, and fetched again: %v",
			ref, damage)})
	}
	return img, layers, err
}

const (
	runDir        = "/run/skerry" // inside
	endpointsFile = "endpoints.json"
)

// makeFiles makes volumes, config files and the directory of endpoints.
func (s *Server) makeFiles(ctx context.Context, a *spec.Assignment) error {
	dir := s.instanceDir(a.ID)
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	for n := range a.Spec.Volumes {
		if err := openVolume(ctx, s, a, &a.Spec.Volumes[n]); err != nil {
			return volumeErr(a.Spec.Volumes[n].Name, err)
		}
	}
	for n, f := range a.Spec.Config {
		if err := writeConfig(s.configFile(a.ID, n), f); err != nil {
			return fmt.Errorf("config %s: %w", f.Path, err)
		}
	}
	s.endpoints.know(a.ID, a.Service.App)
	if err := s.endpoints.write(filepath.Join(dir, "run", endpointsFile), a.Service.App); err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	return nil
}

// openVolume makes a volume, or finds it made, or has it mounted.
func openVolume(ctx context.Context, s *Server, a *spec.Assignment, v *spec.Volume) error {
	if v.NFS != nil {
		return s.opt.NFS.mount(ctx, v.NFS, s.nfsRecord(a.ID, v.Name))
	}
	return s.makeVolume(ctx, s.opt.NFS.table, a, v)
}

func writeConfig(path string, f spec.ConfigFile) error {
	mode := os.FileMode(0o444)
	if f.Mode != "" {
		m, err := strconv.ParseUint(f.Mode, 8, 32)
		if err != nil {
			return err
		}
		mode = os.FileMode(m)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// What is there already may be mounted into a program that runs: it would read half of it, or nothing if the disk is full.
	if data, err := os.ReadFile(path); err != nil || string(data) != f.Content {
		if err := os.WriteFile(path, []byte(f.Content), 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// removeFiles removes an instance's directory and what is mounted in it.
func (s *Server) removeFiles(id skerry.InstanceID) error {
	if hasNFS(s.instanceDir(id)) { // it may be gone when the removal is tried again
		defer s.opt.NFS.sweep(s.work.Load(), s.opt.Log)
	}
	if err := removeMounted(s.instanceDir(id)); err != nil {
		return err
	}
	s.users.give(id)
	return nil
}

// Labels of a task, by which it is known again when the worker's own record of it is lost.
const (
	digestLabel  = "digest"
	restartLabel = "restart"
)

// taskOf names the task of an attempt to start a container.
func taskOf(start *core.StartContainer, attempt int) runtime.TaskID {
	return runtime.TaskID(fmt.Sprintf("%s.%s.%d", start.A.ID, start.Name, attempt))
}

// spec says how to start a container.
func (s *Server) spec(ctx context.Context, start core.StartContainer) (runtime.Spec, runtime.Driver, error) {
	svc := &start.A.Spec
	name := runtimeOf(&start.A)
	driver := s.runtimes.named[name]
	if driver == nil {
		return runtime.Spec{}, nil, &runtime.Unsupported{Driver: name, Reason: "this worker has no such runtime"}
	}
	container, res := containerOf(svc, start.Name)
	if container == nil {
		return runtime.Spec{}, nil, fmt.Errorf("the service has no container %q", start.Name)
	}
	built := runtime.Spec{
		ID: taskOf(&start, start.Attempt), Instance: start.A.ID, Container: start.Name, Dir: container.WorkingDir, User: container.User,
		Hostname:     cmp.Or(svc.Hostname, hostname(start.A.ID)),
		ExtraHosts:   svc.ExtraHosts,
		Resources:    limitsOf(start.A.Level.Enforced(res, name)),
		ReadOnlyRoot: container.Security.ReadOnlyRoot, Privileged: container.Security.Privileged, CapAdd: container.Security.AddCaps,
		CapDrop:            container.Security.DropCaps,
		AllowNewPrivileges: container.Security.NewPrivs, LogMaxBytes: svc.Logs.MaxSize, TTY: container.TTY,
		Sysctls: maps.Clone(container.Sysctls),
	}
	for _, name := range slices.Sorted(maps.Keys(container.Ulimits)) {
		soft, hard := container.Ulimits[name].Limits()
		built.Ulimits = append(built.Ulimits, runtime.Ulimit{Name: name, Soft: soft, Hard: hard})
	}
	if most := storageOf(&start.A, start.Name, name); most > 0 {
		built.LogMaxBytes = min(built.LogMaxBytes, most)
	}
	built.Labels = map[string]string{restartLabel: strconv.FormatUint(start.A.Restart, 10)}
	var err error
	if built.Resources.IO, err = s.ioOf(&start.A, res, name); err != nil {
		return built, nil, err
	}
	if start.Attempt > 1 {
		built.Previous = taskOf(&start, start.Attempt-1)
	}
	if container.Security.Seccomp == "unconfined" {
		built.Seccomp = runtime.SeccompUnconfined
	}
	var img artifact.Image
	if container.Image != "" {
		var layers []string
		if img, layers, err = s.image(ctx, &start.A, container.Image); err != nil {
			return built, nil, fmt.Errorf("image %s: %w", container.Image, err)
		}
		built.Labels[digestLabel] = string(img.Digest)
		if built.RootFS, err = rootFS(name, layers); err != nil {
			return built, nil, fmt.Errorf("image %s: %w", container.Image, err)
		}
	}
	if name == spec.RuntimeVM {
		img.Entrypoint, img.Cmd = []string{artifact.DiskDir}, nil // whatever it says for other runtimes
	}
	if err := fromImage(&built, container, img); err != nil {
		return built, nil, err
	}
	if name == spec.RuntimeUnikernel || name == spec.RuntimeVM {
		built.User = container.User // as for a module
	}
	if m := svc.Machine; m != nil {
		built.Machine = &runtime.Machine{Disk: m.Disk, UserData: m.UserData, SSHKeys: m.SSHKeys, Relaxed: m.Durability == spec.DurabilityRelaxed}
	}
	if name == spec.RuntimeWasm {
		built.User = container.User // an image may name one for other runtimes; a module has none
		built.Listen = listenPorts(svc, start.Name)
		if h := svc.Wasm; h != nil && h.Handler != "" && start.Name == spec.MainContainer {
			built.Handler = &runtime.Handler{Timeout: time.Duration(h.Timeout), Concurrency: h.Concurrency, MaxBody: h.MaxBody}
		}
	}
	confine(&built, &start.A, name)
	built.Network = s.net.get(start.A.ID)
	if err := s.environment(&built, &start.A, container, img, name); err != nil {
		return built, nil, err
	}
	if built.Mounts, err = s.mounts(ctx, &start.A, container, name); err != nil {
		return built, nil, err
	}
	if start.Name == spec.MainContainer {
		if err := s.attach.apply(&built, svc, start.A.Devices); err != nil {
			return built, nil, err
		}
	}
	if svc.Checkpoints() && start.Name == spec.MainContainer {
		// Where it does not work the service runs all the same, and stays where it is.
		_, err := checkpointer(ctx, driver)
		if built.Checkpoint = err == nil; built.Checkpoint &&
			!slices.ContainsFunc(built.Env, func(e string) bool { return strings.HasPrefix(e, "GODEBUG=") }) {
			built.Env = append(built.Env, "GODEBUG=multipathtcp=0") // programs in Go listen by MPTCP, which CRIU does not know
		}
	}
	if err := settleUsers(ctx, s, &start.A, container, start.Name, &built, img); err != nil {
		return built, nil, err
	}
	if err := mountParts(ctx, s, &start.A, start.Name, container, built.Mounts); err != nil {
		return built, nil, err
	}
	secrets, err := s.secrets.mounts(&start.A, start.Name, &built, name)
	if err != nil {
		return built, nil, err
	}
	built.Mounts = append(built.Mounts, secrets...)
	return built, driver, nil
}

// confine holds a container to the security level of its organisation. The site has looked at the manifest; what it leaves to
// the worker is what a container has without asking.
func confine(built *runtime.Spec, a *spec.Assignment, driver string) {
	switch {
	case a.Level == "" || a.Level == spec.LevelPrivileged:
	case driver == spec.RuntimeNative: // whoever it names is somebody of the host
		id := ownUser(a.ID)
		built.User = fmt.Sprintf("%d:%d", id, id)
	case a.Level == spec.LevelRestricted && driver != spec.RuntimeWasm &&
		!built.Privileged: // a module has none, and the site granted privileged by itself
		built.CapDrop = []string{"ALL"}
	}
}

// Native processes of organisations that are not trusted have users of their own, from here on.
const (
	firstOwnUser = 1 << 30
	ownUsers     = 1 << 28
)

// ownUser gives the number of the user, and of its group, that a native instance runs as: always the same, and hardly ever another's.
func ownUser(id skerry.InstanceID) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return firstOwnUser + h.Sum32()%ownUsers
}

// listenPorts gives the TCP ports of a service that its main container listens on.
func listenPorts(svc *spec.ServiceSpec, container string) (out []uint16) {
	if container != spec.MainContainer {
		return nil
	}
	for _, p := range svc.Ports {
		if p.Protocol == "" || p.Protocol == "tcp" {
			out = append(out, uint16(p.Port))
		}
	}
	return out
}

func containerOf(svc *spec.ServiceSpec, name string) (*spec.Container, spec.Resources) {
	if name == spec.MainContainer {
		return &svc.Container, svc.Resources
	}
	for _, list := range [][]spec.SideContainer{svc.Init, svc.Sidecars} {
		for i := range list {
			if list[i].Name == name {
				r := list[i].Resources
				if r.Pids == 0 {
					r.Pids = svc.Resources.Pids
				}
				return &list[i].Container, r
			}
		}
	}
	return nil, spec.Resources{}
}

// hostname is the instance's id, cut to what the kernel and DNS take.
func hostname(id skerry.InstanceID) string {
	if len(id) > 63 {
		return string(id[len(id)-63:])
	}
	return string(id)
}

// rootFS is the root for a driver: an overlay for containers, the one layer of the image for a native process.
func rootFS(driver string, lower []string) ([]runtime.Mount, error) {
	if driver != "native" {
		return []runtime.Mount{runtime.Overlay(lower...)}, nil
	}
	if len(lower) != 1 {
		return nil, &runtime.Unsupported{Ability: runtime.AbilityImages, Driver: driver,
			Reason: fmt.Sprintf("the image has %d layers; a native process needs an image of one, as `skerry image build` makes", len(lower))}
	}
	return []runtime.Mount{{Type: "bind", Source: lower[0]}}, nil
}

// fromImage fills in what the manifest left to the image.
func fromImage(spec *runtime.Spec, container *spec.Container, img artifact.Image) error {
	switch {
	case len(container.Command) > 0:
		spec.Args = append(slices.Clone(container.Command), container.Args...)
	case len(container.Args) > 0:
		spec.Args = append(slices.Clone(img.Entrypoint), container.Args...)
	default:
		spec.Args = img.Args()
	}
	if len(spec.Args) == 0 {
		return &runtime.InvalidSpec{Field: "command", Reason: "neither the manifest nor the image names a program"}
	}
	if spec.Dir == "" {
		spec.Dir = img.WorkingDir
	}
	if spec.User == "" {
		spec.User = img.User
	}
	sig := container.StopSignal
	if sig == "" {
		sig = img.StopSignal
	}
	if sig != "" {
		n, err := parseSignal(sig)
		if err != nil {
			return &runtime.InvalidSpec{Field: "stopSignal", Reason: err.Error()}
		}
		spec.StopSignal = n
	}
	return nil
}

// environment gives a container its variables: the image's, then what Skerry says, then the manifest's; a later one wins. What is known
// only now is put into the command line, too. The task must have its command and its network.
func (s *Server) environment(task *runtime.Spec, assigned *spec.Assignment, container *spec.Container, img artifact.Image,
	driver string) error {
	endpoints := runDir + "/" + endpointsFile
	if driver == spec.RuntimeNative {
		endpoints = filepath.Join(s.instanceDir(assigned.ID), "run", endpointsFile)
	}
	vars := map[string]string{}
	for _, e := range img.Env {
		if n, v, ok := strings.Cut(e, "="); ok {
			vars[n] = v
		}
	}
	maps.Copy(vars, map[string]string{
		"SKERRY_INSTANCE": string(assigned.ID), "SKERRY_SERVICE": assigned.Service.Service, "SKERRY_APP": assigned.Service.App.Name,
		"SKERRY_NAMESPACE": assigned.Service.App.Namespace, "SKERRY_ORDINAL": strconv.Itoa(assigned.Ordinal), "SKERRY_WORKER": s.opt.Name,
		spec.EnvEndpoints: endpoints, "HOSTNAME": cmp.Or(assigned.Spec.Hostname, hostname(assigned.ID)),
	})
	late, err := lateVariables(task, assigned, container, driver, s.opt.Name, func() string { return hostAddress(s) }, s.secrets.open)
	if err != nil {
		return err
	}
	for name, text := range container.Env {
		if vars[name], err = spec.ExpandLate(text, late); err != nil {
			return &runtime.InvalidSpec{Field: "env." + name, Reason: err.Error()}
		}
	}
	maps.Copy(vars, late)
	if given := len(container.Command) + len(container.Args); given > 0 { // what the image says stays as it is
		for i := len(task.Args) - given; i < len(task.Args); i++ {
			if task.Args[i], err = spec.ExpandLate(task.Args[i], late); err != nil {
				return &runtime.InvalidSpec{Field: "args", Reason: err.Error()}
			}
		}
	}
	if vars["PATH"] == "" {
		vars["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	for n, v := range vars {
		task.Env = append(task.Env, n+"="+v)
	}
	slices.Sort(task.Env)
	return nil
}

func (s *Server) mounts(ctx context.Context, assigned *spec.Assignment, container *spec.Container, driver string) ([]runtime.Mount, error) {
	var out []runtime.Mount
	if !slices.Contains([]string{spec.RuntimeNative, spec.RuntimeUnikernel, spec.RuntimeVM}, driver) {
		out = append(out, runtime.Mount{Type: "bind", Source: filepath.Join(s.instanceDir(assigned.ID), "run"), Target: runDir, ReadOnly: true})
	}
	for _, m := range container.Mounts {
		for _, v := range assigned.Spec.Volumes {
			if v.Name != m.Volume {
				continue
			}
			// A boot has unmounted what was made for the containers before it. They would begin anew in the directory below.
			if err := openVolume(ctx, s, assigned, &v); err != nil {
				return nil, volumeErr(v.Name, err)
			}
			mount := runtime.Mount{Type: "bind", Source: s.volumeSource(assigned, &v), Target: m.Path, ReadOnly: m.ReadOnly}
			if driver == spec.RuntimeNative && bounded(assigned) {
				// Root of a machine, or of a container that ran without a user namespace, may have made devices in it,
				// and nothing else keeps a process from them.
				mount.Options = []string{"nosuid", "nodev"}
			}
			out = append(out, mount)
		}
	}
	for n, f := range assigned.Spec.Config {
		out = append(out, runtime.Mount{Type: "bind", Source: s.configFile(assigned.ID, n), Target: f.Path, ReadOnly: true})
	}
	return out, nil
}

// mountParts puts parts of volumes in the place of whole ones in a container's mounts. Each is mounted at a place of the instance's first,
// which nobody in it reaches: whoever may write to the volume can change a path between the moment that it is looked at and the one
// in which a runtime mounts it.
func mountParts(ctx context.Context, server *Server, assigned *spec.Assignment, name string, container *spec.Container,
	mounts []runtime.Mount) error {
	for index, mount := range container.Mounts {
		if mount.SubPath == "" {
			continue
		}
		volume := slices.IndexFunc(assigned.Spec.Volumes, func(v spec.Volume) bool { return v.Name == mount.Volume })
		if volume < 0 {
			continue // as with a whole one
		}
		source := server.volumeSource(assigned, &assigned.Spec.Volumes[volume])
		at := slices.IndexFunc(mounts, func(o runtime.Mount) bool { return o.Source == source && o.Target == mount.Path })
		if at < 0 {
			continue
		}
		part := filepath.Join(server.instanceDir(assigned.ID), "parts", name, strconv.Itoa(index))
		var err error
		if v := &assigned.Spec.Volumes[volume]; v.NFS != nil {
			err = mountRemotePart(ctx, server.opt.NFS.table, v.NFS, source, mount.SubPath, part)
		} else {
			err = mountPart(source, mount.SubPath, part, v.Host == nil)
		}
		if err != nil {
			return volumeErr(mount.Volume, err)
		}
		mounts[at].Source = part
	}
	return nil
}
