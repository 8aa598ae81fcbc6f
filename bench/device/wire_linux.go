package device

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"skerry.dev/skerry/bench/cable"
	"skerry.dev/skerry/wire"
)

// station is the other machine of network cases: a namespace in which the kernels answer. A place lays a cable to it for each run, as a
// runtime may take the addresses of a namespace over for good.
type station struct {
	dir    string
	space  *cable.Space
	server *exec.Cmd
	input  io.Closer // the server ends with it
	port   string
	n      atomic.Uint64
}

// newStation starts the server.
func newStation(dir string, t *tool) (_ *station, err error) {
	s := &station{dir: dir}
	if s.space, err = cable.Make(filepath.Join(dir, "station")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.server, s.input, s.port, err = serve(s.space, t)
	return s, err
}

// serve starts the answering side of network cases in a namespace.
func serve(space *cable.Space, t *tool) (cmd *exec.Cmd, input io.Closer, port string, err error) {
	cmd = exec.Command(t.path, "serve")
	if input, err = cmd.StdinPipe(); err != nil {
		return nil, nil, "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, "", err
	}
	if err := space.Do(cmd.Start); err != nil {
		return nil, nil, "", errors.Join(err, input.Close(), out.Close())
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "port ")
	if err == nil && !ok {
		err = fmt.Errorf("%q is no port", line)
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, nil, "", errors.Join(fmt.Errorf("the other machine: %w", err), input.Close(), cmd.Wait())
	}
	return cmd, input, port, nil
}

func (s *station) close() (err error) {
	if s == nil {
		return nil
	}
	if s.server != nil {
		err = errors.Join(s.input.Close(), s.server.Wait())
	}
	return errors.Join(err, s.space.Close())
}

// wire is a cable from a place to the station.
type lead struct {
	space     *cable.Space // of the place
	own       bool         // it is the place's own
	far       cable.End
	near, ear netip.Prefix // addresses of the place and of the station
	port      string
}

// lay lays a cable for a job: to the machine itself, or to a namespace made for it.
func (s *station) lay(host, plain bool) (w *lead, err error) {
	if host {
		return s.layTo(&cable.Space{}, plain)
	}
	space, err := cable.Make(filepath.Join(s.dir, fmt.Sprint("net-", s.n.Add(1))))
	if err != nil {
		return nil, err
	}
	if w, err = s.layTo(space, plain); err != nil {
		return nil, errors.Join(err, space.Close())
	}
	w.own = true
	return w, nil
}

// layTo lays a cable to a namespace that is there.
func (s *station) layTo(space *cable.Space, plain bool) (w *lead, err error) {
	w = &lead{space: space, port: s.port}
	w.near, w.ear = cable.Block()
	near := cable.End{Space: w.space, Device: fmt.Sprintf("skbd%d", os.Getpid()), Addr: w.near}
	w.far = cable.End{Space: s.space, Device: "far", Addr: w.ear}
	err = cable.Lay(w.far, near)
	if err == nil && plain {
		err = errors.Join(near.Unsegmented(), w.far.Unsegmented())
	}
	if err != nil {
		return nil, errors.Join(err, w.cut())
	}
	return w, nil
}

// cut takes the cable away.
func (w *lead) cut() error {
	err := w.far.Cut()
	if w.own {
		err = errors.Join(err, w.space.Close())
	}
	return err
}

func (w *lead) attachment() *wire.Attachment {
	return &wire.Attachment{NetNS: w.space.Path(), MTU: 1500, Addresses: []netip.Prefix{w.near}}
}

// argsFor fills in where the station answers.
func (w *lead) argsFor(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.NewReplacer(addressHere, w.ear.Addr().String(), portHere, w.port).Replace(a)
	}
	return out
}
