package oakestra

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Statuses of instances, as Oakestra's clients know them. Those that they do not know end oak-cli.
const (
	statusFailed           = "FAILED"
	statusRequested        = "REQUESTED"
	statusClusterScheduled = "CLUSTER_SCHEDULED"
	statusNodeScheduled    = "NODE_SCHEDULED"
	statusCreating         = "CREATING"
	statusRunning          = "RUNNING"
	statusCompleted        = "COMPLETED"
)

// statuses are in the order in which they count for the service.
var statuses = []string{statusFailed, statusRequested, statusClusterScheduled, statusNodeScheduled, statusCreating, statusRunning,
	statusCompleted}

// instance is one as Oakestra shows it. What of a worker is known stays at its site, so that the root has nothing to show of it.
type instance struct {
	Number        int    `json:"instance_number"`
	Status        string `json:"status"`
	Detail        string `json:"status_detail"`
	Cluster       string `json:"cluster_id"`
	PublicIP      string `json:"publicip"`
	HostIP        string `json:"host_ip"`
	HostPort      int    `json:"host_port"`
	CPUPercent    string `json:"cpu_percent"`    // of one processor
	MemoryPercent string `json:"memory_percent"` // of what it may have
	Logs          string `json:"logs"`
}

func showInstance(i *wire.Instance) instance {
	out := instance{Number: i.Ordinal, Status: status(i), Detail: i.Reason, Cluster: clusterID(i.Cluster)}
	if q := i.QoS; q != nil {
		out.CPUPercent = fmt.Sprintf("%.1f", float64(q.CPU)/10)
		if i.Resources != nil && i.Resources.Memory > 0 {
			out.MemoryPercent = fmt.Sprintf("%.1f", 100*float64(q.Memory)/float64(i.Resources.Memory))
		}
	}
	for _, p := range i.Ports {
		if out.HostPort == 0 {
			out.HostPort = p.HostPort
		}
	}
	return out
}

// status says in Oakestra's words how far an instance is.
func status(i *wire.Instance) string {
	switch i.State {
	case skerry.ClusterScheduled:
		return statusClusterScheduled
	case skerry.WorkerScheduled:
		if i.Phase == skerry.PhaseStarting {
			return statusCreating
		}
		return statusNodeScheduled
	case skerry.Running:
		if i.Phase == skerry.PhaseBackOff {
			return statusFailed // its program ended, and is started again
		}
		return statusRunning
	case skerry.Failed:
		return statusFailed
	case skerry.Terminated:
		return statusCompleted
	}
	return statusRequested
}

// startInstance has a service run once more: one replica more, or the next run of a job.
func (c *call) startInstance() (any, error) {
	key, err := c.findService(false)
	if err != nil {
		return nil, err
	}
	defer c.h.turns.take(key.App)()
	app, service, err := c.serviceOf(key)
	if err != nil {
		return nil, err
	}
	at := appPath(key.App) + "/services/" + url.PathEscape(key.Service)
	wanted := 0
	if described := app.Manifest.Spec.Service(key.Service); described != nil && described.Replicas != nil {
		wanted = *described.Replicas
	}
	switch {
	case service.Mode == spec.ModeService:
		_, err = send[apps.Applied](c, http.MethodPut, at+"/scale", map[string]int{"replicas": wanted + 1})
	case service.Mode != spec.ModeJob:
		err = skerry.Errorf(skerry.CodeUnsupported, "service %s runs in mode %s, in which instances are not started one by one", key,
			service.Mode)
	case app.Deployed:
		_, err = send[apps.Applied](c, http.MethodPost, at+"/restart", nil)
	}
	if err == nil && !app.Deployed {
		_, err = send[apps.Applied](c, http.MethodPost, appPath(key.App)+"/deploy", nil)
	}
	if err != nil {
		return nil, err
	}
	return message{"ok"}, nil
}

// stopInstance ends one instance of a service, in whose place none comes.
func (c *call) stopInstance() (any, error) {
	key, err := c.findService(false)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(c.r.PathValue("number"))
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%.20q is not the number of an instance", c.r.PathValue("number"))
	}
	defer c.h.turns.take(key.App)()
	_, service, err := c.serviceOf(key)
	if err != nil {
		return nil, err
	}
	list, err := c.instances(key.App)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(i wire.Instance) bool { return i.Service == key && i.Ordinal == number && !i.Stopping })
	if at < 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "service %s has no instance %d", key, number)
	}
	path := "/v1/instances/" + url.PathEscape(string(list[at].ID))
	if service.Mode == spec.ModeService {
		path += "?scale=true"
	}
	if _, err := send[struct{}](c, http.MethodDelete, path, nil); err != nil {
		return nil, err
	}
	return message{"ok"}, nil
}

// Bounds of the logs that a service is shown with: instances, lines of each, and the time for all.
const (
	loggedInstances = 8
	loggedLines     = 100
	loggedTime      = 5 * time.Second
)

// addLogs adds the newest lines of each instance, if the user may read them and its site answers in time.
func (c *call) addLogs(shown *service, running []wire.Instance) {
	ctx, cancel := context.WithTimeout(c.r.Context(), loggedTime)
	defer cancel()
	asked := 0
	for each := range running {
		one := &running[each]
		at := slices.IndexFunc(shown.Instances, func(i instance) bool { return i.Number == one.Ordinal })
		if at < 0 || one.Service.Service != shown.Name || one.Stopping || one.State != skerry.Running {
			continue
		}
		if asked++; asked > loggedInstances {
			return
		}
		path := "/v1/instances/" + url.PathEscape(string(one.ID)) + "/logs?tail=" + strconv.Itoa(loggedLines)
		lines, err := sendRaw(&call{c.h, c.w, c.r.WithContext(ctx)}, http.MethodGet, path, nil)
		if err != nil {
			continue
		}
		var text strings.Builder
		for dec := json.NewDecoder(bytes.NewReader(lines)); ; {
			var l api.LogLine
			if dec.Decode(&l) != nil {
				break
			}
			text.WriteString(l.Line + "\n")
		}
		shown.Instances[at].Logs = text.String()
	}
}
