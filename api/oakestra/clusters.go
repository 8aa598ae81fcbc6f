package oakestra

import (
	"fmt"
	"net/http"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
)

// cluster is one as Oakestra shows it. Null is what a site does not tell the root.
type cluster struct {
	ID             string   `json:"_id"`
	Name           string   `json:"cluster_name"`
	Candidate      string   `json:"candidate_name"`
	Location       string   `json:"cluster_location"`
	Active         bool     `json:"active"`
	Nodes          int      `json:"active_nodes"`
	Virtualization []string `json:"virtualization"`
	Memory         int64    `json:"memory_in_mb"` // that is available
	Updated        float64  `json:"last_modified_timestamp"`
	IP             string   `json:"ip"`
	Port           *int     `json:"port"`
	CPUPercent     *float64 `json:"aggregated_cpu_percent"`
	CPUs           *int     `json:"total_cpu_cores"`
	GPUs           *int     `json:"total_gpu_cores"`
	Addons         []string `json:"supported_addons"`
	CSIDrivers     []string `json:"csi_drivers"`
}

// memoryOf is the index of memory in spec.ResourceNames.
const memoryOf = 1

func showCluster(v *view.ClusterView) cluster {
	out := cluster{ID: clusterID(v.Name), Name: string(v.Name), Candidate: string(v.Name), Active: v.Connected,
		Virtualization: []string{}, Addons: []string{}, CSIDrivers: []string{}}
	if at := v.Report.Centroid; at != nil {
		out.Location = fmt.Sprintf("%g,%g", at.Lat, at.Lon)
	}
	if !v.ReportAt.IsZero() {
		out.Updated = float64(v.ReportAt.UnixMilli()) / 1000
	}
	for _, class := range v.Report.Classes {
		out.Nodes += class.Workers
		out.Memory += int64(class.Available[memoryOf].Sum) / int64(skerry.MiB)
		out.Virtualization = append(out.Virtualization, class.Class.Runtimes...)
	}
	slices.Sort(out.Virtualization)
	out.Virtualization = slices.Compact(out.Virtualization)
	return out
}

func (c *call) clusters(active bool) (any, error) {
	list, err := send[api.List[view.ClusterView]](c, http.MethodGet, "/v1/clusters", nil)
	out := []cluster{}
	for i := range list.Items {
		if !active || list.Items[i].Connected {
			out = append(out, showCluster(&list.Items[i]))
		}
	}
	return out, err
}

func (c *call) listClusters() (any, error)       { return c.clusters(false) }
func (c *call) listActiveClusters() (any, error) { return c.clusters(true) }
