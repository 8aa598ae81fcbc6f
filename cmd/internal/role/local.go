package role

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// A running role answers whoever may write to its data directory over a socket there: how it fares, join tokens, backups.
// That is how a site gets its first tokens without a login, and how a store in use is saved.

// Status is what a role says of itself.
type Status struct {
	Role      string               `json:"role"`
	Name      string               `json:"name"`
	Version   string               `json:"version"`
	Pid       int                  `json:"pid"`
	Ready     bool                 `json:"ready"`
	Why       string               `json:"why,omitempty"` // it is not ready
	Parent    *ParentStatus        `json:"parent,omitempty"`
	API       string               `json:"api,omitempty"`
	Pin       string               `json:"caPin,omitempty"`
	Runtimes  []wire.RuntimeReport `json:"runtimes,omitempty"`
	Instances []wire.Observation   `json:"instances,omitempty"`
	// Cache is what a root or cluster keeps of other registries' images.
	Cache *artifact.CacheUse `json:"imageCache,omitempty"`
	// Secrets says what keeps the key of a worker's secrets.
	Secrets string `json:"secrets,omitempty"`
	// Held is why a worker is held on its device.
	Frozen string `json:"held,omitempty"`
	// Coordinate is a worker's place in the network, once it is known.
	Coordinate *spec.Coordinate `json:"coordinate,omitempty"`
	// Overlay is how a worker fares there.
	Overlay *overlay.Status `json:"overlay,omitempty"`
	// Succession is how a cluster with successors stands among them.
	Succession *succession.Status `json:"succession,omitempty"`
	// Standbys copy the images of a root or cluster; ImageCopies is how one of them fares.
	Standbys    []view.ImageStandby `json:"standbys,omitempty"`
	ImageCopies *view.ImageStandby  `json:"imageCopies,omitempty"`
	// Rebuilt is what the rebuilding of a cluster has come to.
	Rebuilt *view.Rebuilt `json:"rebuilt,omitempty"`
	// Orphans counts the instances that run and that a root or cluster does not know.
	Orphans int `json:"orphans,omitempty"`
	// Programs are those of a worker's agent.
	Programs *upgrade.State `json:"programs,omitempty"`
}

// ParentStatus is how a role fares with its parent.
type ParentStatus struct {
	Connected bool   `json:"connected"`
	Why       string `json:"why,omitempty"`
}

// socketPath gives the socket of a data directory. The kernel takes 107 bytes; a longer path is replaced by one in a
// private folder of the temporary directory.
func socketPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if p := filepath.Join(dir, "control.sock"); len(p) < 100 {
		return p, nil
	}
	h := sha256.Sum256([]byte(dir))
	private := filepath.Join(os.TempDir(), fmt.Sprintf("skerry-%d", os.Getuid()))
	if err := os.MkdirAll(private, 0o700); err != nil {
		return "", err
	}
	if err := owned(private); err != nil {
		return "", err
	}
	return filepath.Join(private, hex.EncodeToString(h[:8])+".sock"), nil
}

// StartLocal serves the socket of a role. The store's lock makes sure that nobody else does. Where a disk is read-only, there is none
// until it can be written.
func StartLocal(svc *Service, dir string, log *slog.Logger, h http.Handler) error {
	path, err := socketPath(dir)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	ln, err := listenLocal(path)
	if errors.Is(err, syscall.EROFS) {
		log.Warn("commands that ask this role by its data directory get no answer until the disk can be written", "err", err)
	} else if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	svc.Start("control socket", func(ctx context.Context) (err error) {
		for ln == nil {
			select {
			case <-time.After(localAgain):
			case <-ctx.Done():
				return nil
			}
			if ln, err = listenLocal(path); err != nil && !errors.Is(err, syscall.EROFS) {
				return err
			}
		}
		stop := context.AfterFunc(ctx, func() { srv.Close() })
		defer stop()
		if err := srv.Serve(ln); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

// localAgain is how often it is tried to make a socket on a disk that is read-only.
const localAgain = time.Second

func listenLocal(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return ln, nil
}

// ErrNotRunning says that no role runs on a data directory.
var ErrNotRunning = errors.New("the role is not running")

// DialLocal gives what connects to the role that runs on dir, whatever address is asked for.
func DialLocal(dir string) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	sock, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", sock)
		switch {
		case errors.Is(err, os.ErrPermission):
			return nil, skerry.Errorf(skerry.CodeForbidden, "%w", err).WithHint("run it as the user that the role runs as, for example with sudo")
		case err != nil && ctx.Err() == nil:
			return nil, skerry.Errorf(skerry.CodeUnavailable, "%w (no answer at %s)", ErrNotRunning, sock).
				WithHint("start it, or give its data directory with --data")
		}
		return c, err
	}, nil
}

// RequestLocal sends a request to the role that runs on dir, whichever that is, and gives its answer if it is no refusal.
func RequestLocal(ctx context.Context, dir, method, path string, body any) (*http.Response, error) {
	dial, err := DialLocal(dir)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://local"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DialContext: dial}).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		var e struct {
			skerry.Error
			Detail string `json:"detail"`
		}
		if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e) != nil {
			return nil, fmt.Errorf("the role answers %s", resp.Status)
		}
		e.Message = e.Detail
		return nil, &e.Error
	}
	return resp, nil
}

// CallLocal sends a request and decodes the answer.
func CallLocal(ctx context.Context, dir, method, path string, body, into any) error {
	resp, err := RequestLocal(ctx, dir, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// Answer writes the answer to a request on the control socket.
func Answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		tier.WriteProblem(w, skerry.AsError(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
