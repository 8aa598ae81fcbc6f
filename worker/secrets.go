//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/vault"
)

// A secret comes from the cluster sealed for this worker's key, and lies so beside the other files of its instance, for a start
// without a link. What it holds is written when a container starts, to a file system in memory that nobody but root enters.
const (
	sealedDir  = "sealed"  // below the instance's directory
	secretsDir = "secrets" // the file system in memory: one directory for each container, in it one for each secret
	// secretRoom bounds that file system, beyond all that may be in it.
	secretRoom = (spec.MaxContainers + 1) * spec.MaxSecretUses * 2 * spec.MaxSecretBytes
	// wasmUser is whom modules run as; they have no users of their own.
	wasmUser = 65534
)

// secretStore keeps the sealed secrets of instances, and opens them for those that start.
type secretStore struct {
	places
	keys *vault.Key      // nil: none are taken
	up   func() *tier.Up // nil: there is no link
}

func (st *secretStore) sealedFile(id skerry.InstanceID, n spec.SecretName) string {
	key := "none"
	if st.keys != nil {
		key = st.keys.Name() // what another key opens, which may come back, is left alone
	}
	return filepath.Join(st.instanceDir(id), sealedDir, filepath.Base(n.Name+"."+n.Version+"."+key))
}

// SecretsKey says what keeps the key for which secrets are sealed here.
func (s *Server) SecretsKey() string {
	if s.opt.Secrets == nil {
		return ""
	}
	return s.opt.Secrets.How()
}

// fetch brings the secrets of an instance here, as far as they are not.
func (st *secretStore) fetch(ctx context.Context, assigned *spec.Assignment) error {
	for _, secret := range assigned.Spec.SecretNames(assigned.Service.App.Namespace) {
		if _, err := st.open(assigned.ID, secret); err == nil {
			continue
		}
		if st.keys == nil {
			return fmt.Errorf("secret %s: this worker has no key for secrets", secret.Name)
		}
		up := st.up()
		if up == nil {
			return fmt.Errorf("secret %s: it is not here, and there is no cluster to ask", secret.Name)
		}
		sealed, err := tier.AskSecret(ctx, up.Transport, st.keys, secret)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(st.sealedFile(assigned.ID, secret)), 0o700)
		}
		if err == nil {
			err = files.Replace(st.sealedFile(assigned.ID, secret), sealed, 0o600)
		}
		if err != nil {
			return fmt.Errorf("secret %s: %w", secret.Name, err)
		}
	}
	return nil
}

func (st *secretStore) open(id skerry.InstanceID, n spec.SecretName) (spec.SecretValue, error) {
	sealed, err := os.ReadFile(st.sealedFile(id, n))
	if err != nil {
		return nil, err
	}
	if st.keys == nil {
		return nil, errors.New("this worker has no key for secrets")
	}
	return st.keys.Open(n, sealed)
}

// mounts writes the secrets of an instance for one of its containers, and says where they are to appear.
func (st *secretStore) mounts(assigned *spec.Assignment, container string, task *runtime.Spec, driver string) ([]runtime.Mount, error) {
	if len(assigned.Spec.Secrets) == 0 {
		return nil, nil
	}
	uid, gid, err := secretOwner(task, driver)
	if err != nil {
		return nil, err
	}
	room := filepath.Join(st.instanceDir(assigned.ID), secretsDir)
	if err := mountSecrets(room); err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	var out []runtime.Mount
	for i, n := range assigned.Spec.SecretNames(assigned.Service.App.Namespace) {
		u := &assigned.Spec.Secrets[i]
		v, err := st.open(assigned.ID, n)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", n.Name, err)
		}
		dir := filepath.Join(room, container, fmt.Sprint(i))
		if err := writeSecret(dir, v, os.FileMode(u.FileMode()), uid, gid); err != nil {
			return nil, fmt.Errorf("secret %s: %w", n.Name, err)
		}
		if driver == spec.RuntimeNative && strings.HasPrefix(u.Path, "/run/") {
			// A process of the host has no root of its own to make the place in. It stays empty there.
			if err := makeBelowRun(u.Path); err != nil {
				return nil, fmt.Errorf("secret %s: %w", n.Name, err)
			}
		}
		out = append(out, runtime.Mount{Type: "bind", Source: dir, Target: u.Path, ReadOnly: true, Shifted: true})
	}
	return out, nil
}

// makeBelowRun makes a directory in the host's /run, and nowhere else, whatever links are there.
func makeBelowRun(path string) error {
	run, err := os.OpenRoot("/run")
	if err != nil {
		return err
	}
	defer run.Close()
	return run.MkdirAll(strings.TrimPrefix(filepath.Clean(path), "/run/"), 0o755)
}

// secretOwner finds out who a task runs as, as the host numbers users.
func secretOwner(task *runtime.Spec, driver string) (uid, gid uint32, err error) {
	switch driver {
	case spec.RuntimeWasm:
		return wasmUser, wasmUser, nil
	case spec.RuntimeNative:
		return runtime.LookupUser([]string{"/"}, task.User)
	}
	var layers []string
	for _, m := range task.RootFS {
		if m.Type != "overlay" {
			continue
		}
		if layers, _, err = runtime.OverlayDirs(m.Options); err != nil {
			return 0, 0, err
		}
	}
	uid, gid, err = runtime.LookupUser(layers, task.User)
	if u := task.UserNS; u != nil && err == nil {
		// By hand: memory can map the owners of files since Linux 6.3 alone. A user that is not in the namespace is refused later.
		uid, _ = u.Host(uid)
		gid, _ = u.Host(gid)
	}
	return uid, gid, err
}

// writeSecret puts the files of a secret into a directory, which a container that starts again may have seen before.
func writeSecret(dir string, v spec.SecretValue, mode os.FileMode, uid, gid uint32) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range v {
		path := filepath.Join(dir, name)
		tmp := filepath.Join(filepath.Dir(dir), ".new") // beside what the container sees
		err := errors.Join(os.WriteFile(tmp, data, 0o600), os.Chown(tmp, int(uid), int(gid)), os.Chmod(tmp, mode))
		if err == nil {
			err = os.Rename(tmp, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mountSecrets mounts a file system in memory, unless it is there. What is in it is not swapped out where the kernel can do that.
func mountSecrets(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	if here, err := isMemory(path); err != nil || here {
		return err
	}
	options := fmt.Sprintf("size=%d,mode=0700", secretRoom)
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if unix.Mount("tmpfs", path, "tmpfs", flags, options+",noswap") == nil { // Linux 6.4
		return nil
	}
	return unix.Mount("tmpfs", path, "tmpfs", flags, options)
}
