package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// Use of CPU and memory is read where it may be: from the kubelet, through the API server, or from metrics.k8s.io, which a program like
// metrics-server offers. Where neither is, nothing is told: no figures are not figures of nothing.

const (
	// figuresMost bounds an answer: that of a node with 500 pods has about a megabyte.
	figuresMost = 8 << 20
	// metricsLeast is how often metrics.k8s.io is asked at most: it has nothing newer.
	metricsLeast = 15 * time.Second
	// figuresAgain is how long after both have been refused they are asked again.
	figuresAgain = 10 * time.Minute
)

// figure is a number of somebody else. One that is missing, or cannot be, is not known.
type figure struct {
	n     int64
	known bool
}

// UnmarshalJSON never fails.
func (f *figure) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseUint(string(data), 10, 64)
	*f = figure{int64(min(n, most)), err == nil}
	return nil
}

// summary is what a kubelet says of the use of its pods, as far as it concerns us.
type summary struct {
	Pods []struct {
		PodRef struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			UID       string `json:"uid"`
		} `json:"podRef"`
		Containers []struct {
			CPU struct {
				UsageNanoCores figure `json:"usageNanoCores"`
			} `json:"cpu"`
			Memory struct {
				WorkingSetBytes figure `json:"workingSetBytes"`
			} `json:"memory"`
		} `json:"containers"`
	} `json:"pods"`
}

// podMetrics is what metrics.k8s.io says of pods.
type podMetrics struct {
	Items []struct {
		Metadata   Meta `json:"metadata"`
		Containers []struct {
			Usage map[string]text `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// use is what the containers of a pod use together.
type use struct {
	nanoCPU, memory int64
	known           bool
}

func (u *use) add(nanoCPU, memory figure) {
	if nanoCPU.known && memory.known {
		u.nanoCPU, u.memory, u.known = plus(u.nanoCPU, nanoCPU.n), plus(u.memory, memory.n), true
	}
}

// readSummary gives the use of the pods of a namespace, by their UIDs.
func readSummary(data []byte, namespace string) (map[string]use, error) {
	var said summary
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, err
	}
	out := map[string]use{}
	for i := range said.Pods {
		pod := &said.Pods[i]
		var sum use
		for j := range pod.Containers {
			sum.add(pod.Containers[j].CPU.UsageNanoCores, pod.Containers[j].Memory.WorkingSetBytes)
		}
		if sum.known && pod.PodRef.Namespace == namespace {
			out[pod.PodRef.UID] = sum
		}
	}
	return out, nil
}

// readMetrics gives the use of pods by their names.
func readMetrics(data []byte) (map[string]use, error) {
	var said podMetrics
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, err
	}
	out := map[string]use{}
	for i := range said.Items {
		var sum use
		for _, c := range said.Items[i].Containers {
			sum.add(nanos(c.Usage["cpu"]), bytesOf(c.Usage["memory"]))
		}
		if sum.known {
			out[said.Items[i].Metadata.Name] = sum
		}
	}
	return out, nil
}

// figures reads use for one worker.
type figures struct {
	w       *Worker
	metrics bool      // of metrics.k8s.io: the kubelet's are refused
	again   time.Time // neither is there; they are asked again then
	last    time.Time // metrics.k8s.io was asked
	failure string    // the last one that was logged
	told    bool      // the core has figures
}

// measureEvery sets how often use is measured; 0: as usual.
func (w *Worker) measureEvery(every time.Duration) {
	select { // the last word counts
	case <-w.pace:
	default:
	}
	w.pace <- every
}

// measure tells the core what the pods of this worker use, until ctx ends.
func (w *Worker) measure(ctx context.Context, running *loop.Loop) {
	reader, every := &figures{w: w}, core.UsualMeasure
	for {
		select {
		case <-ctx.Done():
			return
		case asked := <-w.pace:
			if every = core.UsualMeasure; asked > 0 {
				every = asked
			}
			continue
		case <-time.After(every):
		}
		usage, fresh := reader.usage(ctx, time.Now())
		if up := w.up.Load(); up != nil {
			usage.RTT, usage.Loss = up.Quality()
		}
		if fresh && (len(usage.Instances) > 0 || reader.told) {
			reader.told = len(usage.Instances) > 0
			running.Post(usage)
		}
	}
}

// usage gives what the instances that run here use; fresh is false if nothing newer is known than before.
func (f *figures) usage(ctx context.Context, now time.Time) (out core.Usage, fresh bool) {
	of := map[string]*Pod{} // by UID and by name
	for _, pod := range f.w.fleet.ofWorker(f.w.name) {
		if Look(pod, now).Stage == Running {
			of[pod.Metadata.UID], of[pod.Metadata.Name] = pod, pod
		}
	}
	if len(of) == 0 {
		return out, true
	}
	if f.metrics && f.again.IsZero() && now.Sub(f.last) < metricsLeast {
		return out, false
	}
	list, err := f.read(ctx, now)
	if err != nil && ctx.Err() == nil && err.Error() != f.failure {
		f.failure = err.Error()
		f.w.log.Warn("the use of instances is not known", "err", err)
	}
	if err == nil && list != nil {
		f.failure = ""
	}
	out.Instances = map[skerry.InstanceID]wire.QoS{}
	from := map[skerry.InstanceID]int{} // the attempt
	for key, used := range list {
		pod := of[key]
		if pod == nil {
			continue
		}
		q := wire.QoS{CPU: skerry.MilliCPU((used.nanoCPU + 500_000) / 1_000_000), Memory: skerry.Bytes(used.memory)}
		id, attempt := skerry.InstanceID(pod.Metadata.Annotations[instanceNote]), attemptOf(pod)
		if _, is := out.Instances[id]; !is || attempt > from[id] { // the one before may still be ending
			out.Instances[id], from[id] = q, attempt
		}
		out.Used.CPU, out.Used.Memory = plus(out.Used.CPU, q.CPU), plus(out.Used.Memory, q.Memory)
	}
	return out, true
}

// noFigures says what is to be done where there are none.
const noFigures = "neither the kubelet's figures nor metrics.k8s.io can be read; docs/KUBERNETES-CLUSTER.md says which rights are needed"

// read asks the kubelet, and where that is refused metrics.k8s.io. Both are asked for again after a while.
func (f *figures) read(ctx context.Context, now time.Time) (map[string]use, error) {
	if now.Before(f.again) {
		return nil, nil
	}
	client, style := f.w.fleet.opt.Client, &f.w.fleet.opt.Style
	if !f.metrics || !f.again.IsZero() {
		var data json.RawMessage
		path := "/api/v1/nodes/" + url.PathEscape(f.w.node) + "/proxy/stats/summary"
		err := client.atMost(ctx, figuresMost, http.MethodGet, path, url.Values{"only_cpu_and_memory": {"true"}}, nil, &data)
		if err == nil {
			f.metrics, f.again = false, time.Time{}
			return readSummary(data, style.Namespace)
		}
		if !refused(err) {
			return nil, fmt.Errorf("figures of the kubelet: %w", err)
		}
		f.metrics = true
	}
	var data json.RawMessage
	path := "/apis/metrics.k8s.io/v1beta1/namespaces/" + url.PathEscape(style.Namespace) + "/pods"
	query := url.Values{"labelSelector": {managedLabel + "=" + managedBy + "," + siteLabel + "=" + labelValue(style.Site) + "," +
		workerLabel + "=" + labelValue(f.w.name)}}
	f.last = now
	switch err := client.atMost(ctx, figuresMost, http.MethodGet, path, query, nil, &data); {
	case err == nil:
		f.again = time.Time{}
		return readMetrics(data)
	case refused(err):
		f.again = now.Add(figuresAgain)
		return nil, errors.New(noFigures)
	default:
		f.again = time.Time{}
		return nil, fmt.Errorf("figures of metrics.k8s.io: %w", err)
	}
}

// refused reports whether figures are not there for us: the API, or the right to read it.
func refused(err error) bool {
	code := status(err)
	return code == http.StatusForbidden || code == http.StatusNotFound || code == http.StatusMethodNotAllowed
}

// nanos reads an amount of processors in billionths of one.
func nanos(value text) figure {
	whole, ok := readQuantity(value)
	if !ok {
		return figure{}
	}
	n := whole.ScaledValue(-9)
	if whole.Value() > math.MaxInt32 {
		n = most
	}
	return figure{min(n, most), true}
}

func bytesOf(value text) figure {
	whole, ok := readQuantity(value)
	return figure{min(max(whole.Value(), 0), most), ok}
}
