package tier

import (
	"fmt"
	"io"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/link/mqtt"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// LoopStats gives the counters of the present life.
func (r *Role) LoopStats() loop.Stats {
	if l := r.cur.Load(); l != nil {
		return l.loop.Stats()
	}
	return loop.Stats{}
}

// RoleMetrics writes what root and cluster have in common as Prometheus text. Down and Up may be nil.
type RoleMetrics struct {
	Role      *Role
	Down      *Down
	External  *mqtt.Listener // nil: there is none
	Up        *Up
	Ready     error
	Images    Registry // nil: it has none
	Unknown   error    // why what follows is not known, and no metric of it is written; nil: it is
	Apps      []view.AppView
	Instances []wire.Instance
	Refused   map[string]int // what neighbours asked of the overlay and did not get, by reason
	Ignored   map[string]int // what peers sent that had no effect, by reason
	Orphans   int            // instances that run and that the store does not know
	// Certificates are those of a public authority; nil: the role is no cluster.
	Certificates *CertificateMetrics
}

// CertificateMetrics are those of the certificates that a site orders of a public authority.
type CertificateMetrics struct {
	Hosts, Valid, Failing int
	Unserved              int // valid, and not with the workers
	Issued, Failed        uint64
	Ends                  time.Time // of the first one that ends; the zero time: there is none
}

func (m *CertificateMetrics) write(out io.Writer) {
	metric(out, "skerry_certificates", "gauge", "Hosts with tls: acme by state of their certificate; one that fails may be valid, too.")
	writeBy(out, "skerry_certificates", "state", map[string]int{"valid": m.Valid, "missing": m.Hosts - m.Valid - m.Unserved,
		"unserved": m.Unserved, "failing": m.Failing})
	metric(out, "skerry_certificate_orders_total", "counter", "Orders of certificates that ended, by result.")
	writeBy(out, "skerry_certificate_orders_total", "result", map[string]int{"issued": int(m.Issued), "failed": int(m.Failed)})
	metric(out, "skerry_certificate_expiry_seconds", "gauge", "When the first of these certificates expires, in seconds since 1970.")
	if !m.Ends.IsZero() {
		fmt.Fprintf(out, "skerry_certificate_expiry_seconds %d\n", m.Ends.Unix())
	}
}

func metric(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// Write writes the metrics.
func (m *RoleMetrics) Write(out io.Writer) {
	metric(out, "skerry_ready", "gauge", "Whether the role can do its work.")
	fmt.Fprintf(out, "skerry_ready %d\n", one(m.Ready == nil))
	writeLoop(out, m.Role.LoopStats())
	if m.Down != nil {
		metric(out, "skerry_links", "gauge", "Children that are connected.")
		fmt.Fprintf(out, "skerry_links %d\n", m.Down.Live())
		s := m.Down.Stats()
		metric(out, "skerry_link_connections_total", "counter", "Connections of children that were accepted.")
		fmt.Fprintf(out, "skerry_link_connections_total %d\n", s.Accepted.Load())
		metric(out, "skerry_link_bytes_total", "counter", "Bytes of frames on the links, before TLS.")
		fmt.Fprintf(out, "skerry_link_bytes_total{direction=\"in\"} %d\nskerry_link_bytes_total{direction=\"out\"} %d\n", s.BytesIn.Load(),
			s.BytesOut.Load())
		metric(out, "skerry_link_frames_total", "counter", "Frames on the links.")
		fmt.Fprintf(out, "skerry_link_frames_total{direction=\"in\"} %d\nskerry_link_frames_total{direction=\"out\"} %d\n", s.FramesIn.Load(),
			s.FramesOut.Load())
		metric(out, "skerry_link_streams_total", "counter", "Streams opened towards children and served for them.")
		fmt.Fprintf(out, "skerry_link_streams_total{by=\"parent\"} %d\nskerry_link_streams_total{by=\"child\"} %d\n", s.StreamsOpened.Load(),
			s.StreamsServed.Load())
		metric(out, "skerry_link_ends_total", "counter", "Connections that ended or were turned away, by reason.")
		ends := map[string]int{}
		for r, n := range s.Ends() {
			ends[string(r)] = int(n)
		}
		writeBy(out, "skerry_link_ends_total", "reason", ends)
	}
	if m.External != nil {
		writeExternal(out, m.External.Stats())
	}
	if m.Up != nil {
		WriteParent(out, m.Up)
	}
	if i, ok := m.Images.(*Images); ok {
		c := i.Store.Cache.Use()
		metric(out, "skerry_image_cache_bytes", "gauge", "What is kept of other registries' images.")
		fmt.Fprintf(out, "skerry_image_cache_bytes %d\n", c.Bytes)
		metric(out, "skerry_image_cache_limit_bytes", "gauge", "How much may be kept of them.")
		fmt.Fprintf(out, "skerry_image_cache_limit_bytes %d\n", c.Max)
		metric(out, "skerry_image_cache_evicted_total", "counter", "Names of images that went to make room for others.")
		fmt.Fprintf(out, "skerry_image_cache_evicted_total %d\n", c.Evicted)
		if s := i.Standbys; s != nil {
			metric(out, "skerry_image_standbys", "gauge", "Processes that stand by, are connected and copy the images that were pushed here.")
			fmt.Fprintf(out, "skerry_image_standbys %d\n", s.connected())
			metric(out, "skerry_images_uncopied", "gauge", "Images that were pushed here and that not every such process has.")
			fmt.Fprintf(out, "skerry_images_uncopied %d\n", s.uncopied())
		}
	}
	if m.Certificates != nil {
		m.Certificates.write(out)
	}
	if m.Unknown == nil {
		m.writeWork(out)
	}
}

// writeExternal writes the metrics of the listener for agents of others.
func writeExternal(w io.Writer, s *mqtt.Stats) {
	metric(w, "skerry_mqtt_devices", "gauge", "Devices that are connected by MQTT and admitted; they count among skerry_links, too.")
	fmt.Fprintf(w, "skerry_mqtt_devices %d\n", s.Live.Load())
	metric(w, "skerry_mqtt_connections_total", "counter", "Connections that the MQTT listener accepted.")
	fmt.Fprintf(w, "skerry_mqtt_connections_total %d\n", s.Accepted.Load())
	metric(w, "skerry_mqtt_messages_total", "counter", "Messages from and to devices.")
	fmt.Fprintf(w, "skerry_mqtt_messages_total{direction=\"in\"} %d\nskerry_mqtt_messages_total{direction=\"out\"} %d\n", s.In.Load(),
		s.Out.Load())
	metric(w, "skerry_mqtt_reasons_total", "counter", "Connections by MQTT that ended, and what had no effect there, by reason.")
	by := map[string]int{}
	for r, n := range s.Reasons() {
		by[r] = int(n)
	}
	writeBy(w, "skerry_mqtt_reasons_total", "reason", by)
}

// WriteParent writes the metrics of the link to the tier above.
func WriteParent(w io.Writer, u *Up) {
	up, _ := u.Connected()
	metric(w, "skerry_parent_connected", "gauge", "Whether the tier above is connected.")
	fmt.Fprintf(w, "skerry_parent_connected %d\n", one(up))
	metric(w, "skerry_parent_rtt_seconds", "gauge", "Last round trip to the tier above.")
	fmt.Fprintf(w, "skerry_parent_rtt_seconds %g\n", u.RTT().Seconds())
}

// WriteLoop writes the counters of the role's core.
func (r *Role) WriteLoop(w io.Writer) { writeLoop(w, r.LoopStats()) }

func writeLoop(w io.Writer, s loop.Stats) {
	metric(w, "skerry_core_messages_total", "counter", "Messages that the core has taken.")
	fmt.Fprintf(w, "skerry_core_messages_total %d\n", s.Messages)
	metric(w, "skerry_store_commits_total", "counter", "Commits of the core's state.")
	fmt.Fprintf(w, "skerry_store_commits_total %d\n", s.Commits)
	metric(w, "skerry_core_queue", "gauge", "Messages that wait for the core.")
	fmt.Fprintf(w, "skerry_core_queue %d\n", s.Queue)
}

func (m *RoleMetrics) writeWork(out io.Writer) {
	metric(out, "skerry_ignored_total", "counter", "What peers sent that had no effect, by reason.")
	writeBy(out, "skerry_ignored_total", "reason", m.Ignored)
	metric(out, "skerry_orphans", "gauge", "Instances that run and that the store does not know.")
	fmt.Fprintf(out, "skerry_orphans %d\n", m.Orphans)
	metric(out, "skerry_applications", "gauge", "Applications by status.")
	status := map[string]int{"Registered": 0, "Progressing": 0, "Ready": 0, view.AppRolledBack: 0, "Degraded": 0, "Deleting": 0,
		"Completed": 0}
	for _, a := range m.Apps {
		status[a.Status]++
	}
	writeBy(out, "skerry_applications", "status", status)
	state := map[string]int{}
	ready, restarts := 0, 0
	for _, s := range skerry.States {
		state[string(s)] = 0
	}
	for i := range m.Instances {
		state[string(m.Instances[i].State)]++
		ready += one(skerry.HasCondition(m.Instances[i].Conditions, skerry.Ready))
		restarts += m.Instances[i].Restarts
	}
	metric(out, "skerry_instances", "gauge", "Instances by state.")
	writeBy(out, "skerry_instances", "state", state)
	metric(out, "skerry_instances_ready", "gauge", "Instances that may get traffic.")
	fmt.Fprintf(out, "skerry_instances_ready %d\n", ready)
	metric(out, "skerry_overlay_refused_total", "counter", "What neighbours below told of the overlay and was refused, by reason.")
	writeBy(out, "skerry_overlay_refused_total", "reason", m.Refused)
	metric(out, "skerry_instances_restarts", "gauge", "Restarts of the instances that there are.")
	fmt.Fprintf(out, "skerry_instances_restarts %d\n", restarts)
}

func writeBy(w io.Writer, name, label string, by map[string]int) {
	keys := make([]string, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(w, "%s{%s=%q} %d\n", name, label, k, by[k])
	}
}
