package ctl

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (q *listQuery) showVolume(v *view.VolumeView) string {
	if q.all {
		return v.Namespace + "/" + v.Name
	}
	return v.Name
}

func listVolumes(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Volumes(ctx, q.namespace)
	var out []item
	for _, v := range list {
		if q.app != "" && v.App != q.app {
			continue
		}
		name, since := q.showVolume(&v), ""
		if !v.Since.IsZero() {
			since = age(q.now, v.Since)
		}
		out = append(out, item{name: name, value: v, cells: []string{name, string(v.State), volumeSize(&v), strings.Join(v.Volumes, ","),
			v.Reclaim, string(v.Cluster), string(v.Worker), since, lastSnapshot(v.Scheduled, q.now)},
			wide: []string{v.Org, string(v.Instance), v.Origin}})
	}
	return out, err
}

// lastSnapshot says how old the last snapshot of a schedule is, and whether it is followed; "": there is no schedule.
func lastSnapshot(schedule *wire.VolumeSchedule, now time.Time) string {
	if schedule == nil {
		return ""
	}
	last := "none yet"
	if !schedule.Last.IsZero() {
		last = age(now, schedule.Last)
	}
	switch {
	case schedule.OutOfTouch && schedule.Last.IsZero():
		last = "out of touch"
	case schedule.OutOfTouch:
		last = "out of touch, last known: " + last
	case schedule.Reason != "":
		last = "failing, last: " + last
	}
	if e := schedule.Export; e != nil && !schedule.OutOfTouch {
		switch {
		case e.Reason != "" && e.Last.IsZero():
			last += "; export failing"
		case e.Reason != "":
			last += "; export failing, last: " + age(now, e.Last)
		case e.Last.IsZero():
			last += "; not exported yet"
		default:
			last += "; exported: " + age(now, e.Last)
		}
	}
	return last
}

func volumeSize(v *view.VolumeView) string {
	if v.Size == 0 {
		return ""
	}
	return v.Size.String()
}

// replicaVolumes reads the name of the volumes of a replica: APPLICATION/SERVICE/REPLICA, with the namespace before it where it is another.
func (a *app) replicaVolumes(name string) (spec.VolumeClaim, error) {
	namespace := a.namespace()
	if strings.Count(name, "/") == 3 {
		namespace, name, _ = strings.Cut(name, "/")
	}
	return spec.ParseVolumeName(namespace, name)
}

// volumeClaim reads such a name, or that of a single volume which a replica no longer has: it ends with :VOLUME.
func (a *app) volumeClaim(name string) (spec.VolumeClaim, error) {
	whole, volume, _ := strings.Cut(name, ":")
	v, err := a.replicaVolumes(whole)
	v.Volume = volume
	return v, err
}

func (a *app) describeVolume(ctx context.Context, client *api.Client, out io.Writer, name string) error {
	claim, err := a.volumeClaim(name)
	if err != nil {
		return err
	}
	list, err := client.Volumes(ctx, claim.Service.App.Namespace)
	if err != nil {
		return err
	}
	n := slices.IndexFunc(list, func(volume view.VolumeView) bool { return volume.Claim() == claim })
	if n < 0 {
		return skerry.Errorf(skerry.CodeNotFound, "there is no volume %s", claim).WithHint("`skerry get volumes` lists them")
	}
	volume, now := list[n], time.Now()
	pairs := newPairs(out)
	pairs.add("Volume", claim.String())
	pairs.add("Organisation", volume.Org)
	pairs.add("Service", claim.Service.String())
	pairs.add("Replica", fmt.Sprint(volume.Replica))
	pairs.add("Volumes", strings.Join(volume.Volumes, ", "))
	pairs.add("Size", volumeSize(&volume))
	pairs.add("State", map[view.VolumeState]string{view.VolumeUsed: "Used",
		view.VolumeIdle: "Idle: no instance has it now; its service would use it again",
		view.VolumeKept: "Kept: its service is gone; one of the same name uses it again, and `skerry delete volume " + volume.Name + "` deletes it",
		view.VolumeOrphan: "Orphan: a site that had lost its store found it on the worker; a service of the same name uses it again, " +
			"and `skerry delete volume " + volume.Name + "` deletes it"}[volume.State])
	pairs.add("Unused since", when(now, volume.Since))
	pairs.add("Reclaim", volume.Reclaim)
	pairs.add("Instance", string(volume.Instance))
	pairs.add("Cluster", string(volume.Cluster))
	pairs.add("Worker", string(volume.Worker))
	pairs.add("Owner", volume.Origin)
	if s := volume.Scheduled; s != nil {
		known := ""
		if s.OutOfTouch {
			known = "; cluster " + string(volume.Cluster) + " is out of touch, and this is its last report"
		}
		pairs.add("Snapshots", fmt.Sprintf("%s, %d of %d kept%s", s.Schedule, s.Kept, s.Keep, known))
		pairs.add("Last snapshot", cmp.Or(when(now, s.Last), "none yet"))
		pairs.add("Next snapshot", ahead(s.Next))
		if s.Reason != "" {
			pairs.add("Failed", when(now, s.Failed)+": "+s.Reason)
			pairs.add("Tried again", ahead(s.Again))
		}
		if e := s.Export; e != nil {
			pairs.add("Exported", fmt.Sprintf("to %s, %d of %d kept", e.To, e.Kept, e.Keep))
			pairs.add("Last export", cmp.Or(when(now, e.Last), "none yet"))
			if e.Reason != "" {
				pairs.add("Export failed", when(now, e.Failed)+": "+e.Reason)
				pairs.add("Export again", ahead(e.Again))
			}
		}
	}
	pairs.flush()
	return nil
}

// ahead shows a time to come.
func ahead(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// tellVolumes says what becomes of the local volumes of an application that is deleted.
func (a *app) tellVolumes(out io.Writer, d apps.Deleted) {
	name := func(v *view.VolumeView) string {
		if v.Namespace == a.namespace() {
			return v.Name
		}
		return v.Namespace + "/" + v.Name
	}
	show := func(v *view.VolumeView) string {
		text := "volume/" + name(v)
		if len(v.Volumes) > 0 {
			text += " (" + strings.Join(v.Volumes, ", ") + ")"
		}
		return text
	}
	for i := range d.Deleted {
		fmt.Fprintf(out, "%s is being deleted with its contents\n", show(&d.Deleted[i]))
	}
	for i := range d.Kept {
		fmt.Fprintf(out, "%s is kept; `skerry delete volume %s` deletes it\n", show(&d.Kept[i]), name(&d.Kept[i]))
	}
}
