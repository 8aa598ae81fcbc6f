package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/interference"
	"skerry.dev/skerry/lab"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

const (
	imagingTag = "skerry.local/bench/imaging:1"
	// imagingCPU is what an instance of the image service may use, in processors.
	imagingCPU, imagingReplicas = 0.5, 2
	// answerTime is how long an answer may take from when its request was due.
	answerTime = 10 * time.Second
	// crowdedCPU is what the first worker is given, with all that it runs and its neighbours, which are then in nobody
	// else's way. An instance is allowed no more than that under version 1 of cgroups, nor is the work of a profile.
	crowdedCPU = skerry.MilliCPU(1000)
	// profileTries is how often a profile is taken whose rounds are too far apart to tell how fast a worker is.
	profileTries = 3
	// neighbours are the threads that compute beside it.
	neighbours = 3
	// profileFile is where a worker keeps what was measured.
	profileFile = "profile.json"
)

// The figure that keeps the rate of the parts crowded and uncrowded.
const sentGroup, sentName = "crowded and uncrowded", "requests that are sent to each instance"

// images are the programs of the parts that send requests.
type images struct {
	service, neighbour string
	sums               []string
}

// imaging makes the programs once.
func (m *labRun) imaging(ctx context.Context) (err error) {
	if m.images.sums != nil {
		return nil
	}
	var p images
	if p.service, err = m.build(ctx, "examples/services", "or leave out crowded and uncrowded"); err != nil {
		return err
	}
	if p.neighbour, err = m.build(ctx, "bench/neighbour", "or leave out crowded and uncrowded"); err != nil {
		return err
	}
	p.sums, err = interference.Sums(ctx, p.service, interference.Image)
	m.images = p
	return err
}

// profiled has the image service placed with or without profiles, where the first worker is crowded or not, and sends it requests.
func (m *labRun) profiled(ctx context.Context, fed *federation, crowded, known bool) (_ map[string]float64, err error) {
	if err := m.imaging(ctx); err != nil {
		return nil, err
	}
	if !fed.imaging {
		if err := fed.push(ctx, m.images.service, imagingTag, m.dir); err != nil {
			return nil, err
		}
		fed.imaging = true
	}
	normal, err := m.crowd(ctx, fed, crowded)
	defer func() { err = errors.Join(err, normal()) }()
	if err != nil {
		return nil, err
	}
	if err := m.measure(ctx, fed, crowded); err != nil {
		return nil, err
	}
	if err := fed.know(ctx, fed.profiles[crowded], known); err != nil {
		return nil, err
	}
	name := m.fresh()
	defer func() { err = errors.Join(err, fed.remove(context.WithoutCancel(ctx), name)) }()
	if _, err := fed.apply(ctx, name, imagingManifest(name, m.rate), imagingReplicas, m.o.Timeout); err != nil {
		return nil, err
	}
	list, err := fed.instances(ctx, name)
	if err != nil {
		return nil, err
	}
	var to []interference.Target
	values := map[string]float64{"on.slow": 0}
	for _, i := range list {
		to = append(to, interference.Target{Addr: net.JoinHostPort(i.Address, strconv.Itoa(answerPort)), Dial: fed.dialer(string(i.Worker))})
		if string(i.Worker) == workerHost(0, 0) {
			values["on.slow"] += 100 / float64(len(list))
		}
	}
	o, err := interference.Drive{Rate: m.rate * float64(len(to)), Warm: m.o.Load / 5, Load: m.o.Load, Timeout: answerTime,
		Sums: m.images.sums}.Run(ctx, to)
	if err != nil {
		return nil, err
	}
	values["unanswered"], values["late"] = 100-o.Success, o.Late
	if o.Latency == nil {
		return nil, fmt.Errorf("no request was answered: %s", o.Error)
	}
	values["p50"], values["p99"] = o.Latency.P50, o.Latency.P99
	return values, nil
}

// imagingManifest has the instances spread over workers: without profiles half of them are beside the neighbours, as
// half of all services would be by chance with policies that put them together.
func imagingManifest(name string, rate float64) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"s","image":"bench/imaging:1","args":["serve","image",":%d"],"ports":[{"port":%d}],"replicas":%d,
"placement":{"policy":"spread"},"expectedRate":%g,"resources":{"cpu":%g,"memory":"128Mi"},"terminationGrace":"1s"}]}}`, name, answerPort, answerPort, imagingReplicas, rate, imagingCPU)
}

// crowd has neighbours compute beside the first worker, until the function that it gives is called; not crowded it has
// as much of the processors, and no neighbours.
func (m *labRun) crowd(ctx context.Context, f *federation, crowded bool) (normal func() error, err error) {
	host := workerHost(0, 0)
	normal = func() error { return f.l.SetCPU(host, 0) }
	if err := f.l.SetCPU(host, crowdedCPU); err != nil || !crowded {
		return normal, err
	}
	within, stop := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.Command(m.images.neighbour, "cpu", strconv.Itoa(neighbours))
	ended := make(chan error, 1)
	go func() {
		status, err := f.l.Exec(within, host, cmd)
		if within.Err() == nil {
			err = errors.Join(err, fmt.Errorf("the neighbour ended with %d", status))
		}
		ended <- err
	}()
	return func() error { stop(); return errors.Join(<-ended, f.l.SetCPU(host, 0)) }, nil
}

// measure has each worker's runtimes measured as they are now, once in a federation, and settles the rate of the report.
func (m *labRun) measure(ctx context.Context, fed *federation, crowded bool) error {
	if fed.profiles[crowded] != nil {
		return nil
	}
	took := map[string][]byte{}
	for _, host := range fed.l.Names(lab.RoleWorker) {
		dir, oci := filepath.Join(fed.l.Data, host), wire.RuntimeProfile{}
		for range profileTries {
			m.o.Say("measuring the runtimes of %s", host)
			var err error
			if oci, err = m.takeProfile(ctx, fed, host, dir); err != nil {
				return err
			}
			if oci.Spread <= wire.MaxProfileSpread {
				break
			}
		}
		var err error
		if took[host], err = os.ReadFile(filepath.Join(dir, profileFile)); err != nil {
			return err
		}
		group := "profiles of the workers, " + map[bool]string{true: "crowded", false: "uncrowded"}[crowded]
		for _, x := range []struct {
			name, unit string
			v          float64
		}{{"rate", "1/s", oci.Rate}, {"share", "of a processor", oci.Share}, {"spread", "of the rate", oci.Spread}} {
			f := m.r.Figure(group, x.name, host)
			f.Unit = x.unit
			m.r.Add(f, x.v)
		}
		if host != workerHost(0, 0) && m.rate == 0 {
			if m.rate = math.Round(100*m.o.Expect*saturation(oci)) / 100; m.rate == 0 {
				return fmt.Errorf("how fast %s is could not be measured: its rounds are %.0f %% apart", host, 100*oci.Spread)
			}
			sent := m.r.Figure(sentGroup, sentName, "")
			sent.Unit = "1/s"
			m.r.Add(sent, m.rate)
		}
	}
	fed.profiles[crowded] = took
	return nil
}

// saturation is what an instance bears by a profile of containers, in requests per second; 0: that does not tell.
func saturation(oci wire.RuntimeProfile) float64 {
	facts := wire.WorkerFacts{Runtimes: []wire.RuntimeReport{{Name: spec.RuntimeOCI, Passed: true, Profile: &oci}}}
	spec := spec.ServiceSpec{Resources: spec.Resources{CPU: 1000 * imagingCPU}}
	return spec.Saturation(facts.Slowness())
}

func (m *labRun) takeProfile(ctx context.Context, f *federation, host, dir string) (oci wire.RuntimeProfile, err error) {
	var out bytes.Buffer
	cmd := exec.Command(m.o.Program, "worker", "profile", "--data", dir, "--rounds", strconv.Itoa(m.o.ProfileRounds))
	cmd.Stdout, cmd.Stderr = &out, &out
	status, err := f.l.Exec(ctx, host, cmd)
	if err != nil {
		return oci, err
	}
	if status != 0 {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return oci, fmt.Errorf("the profile of %s ended with %d: %s", host, status, strings.Join(lines[max(0, len(lines)-2):], "; "))
	}
	list, err := worker.ReadProfile(dir)
	return list[spec.RuntimeOCI], err
}

// know gives each worker its profile or takes it away, and waits until the cluster goes by that.
func (f *federation) know(ctx context.Context, profiles map[string][]byte, known bool) error {
	for host, text := range profiles {
		dir := filepath.Join(f.l.Data, host)
		err := os.Remove(filepath.Join(dir, profileFile))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if known {
			err = os.WriteFile(filepath.Join(dir, profileFile), text, 0o600)
		}
		if err != nil {
			return err
		}
		// A self-test reads it, and tells the cluster.
		if out, err := exec.CommandContext(ctx, f.o.Binary, "worker", "check", "--data", dir).CombinedOutput(); err != nil {
			return fmt.Errorf("self-test of %s: %w: %s", host, err, strings.TrimSpace(string(out)))
		}
	}
	return until(ctx, "the cluster knows what was measured", func() (bool, error) {
		list, err := f.sites[0].Workers(ctx)
		return err == nil && !slices.ContainsFunc(list, func(w view.WorkerView) bool {
			return w.Facts == nil || known != slices.ContainsFunc(w.Facts.Runtimes, func(r wire.RuntimeReport) bool { return r.Profile != nil })
		}), err
	})
}
