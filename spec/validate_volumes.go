package spec

import (
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// amount checks what has no least.
func (c *checker) amount(p string, n skerry.Bytes) {
	if n < 0 || n > MaxAmount {
		c.add(p, "", "must be from 0 to %s", MaxAmount)
	}
}

func (c *checker) volumeSize(p string, size skerry.Bytes) {
	c.amount(p, size)
	if size < 0 || size > 0 && size < MinVolumeSize {
		c.add(p, "leave size out for no limit but the disk's", "%s is too little for a file system; the least is %s", size, MinVolumeSize)
	}
}

// localVolume checks what a service with local volumes may not ask for besides.
func (c *checker) localVolume(p, vp string, s *ServiceSpec, local *LocalVolume) {
	c.oneOf(vp+".local.reclaim", local.Reclaim, ReclaimKeep, ReclaimDelete)
	if s.Mode != "" && s.Mode != ModeService {
		c.add(vp+".local", "use empty for what may go with the instance, or host",
			"local volumes belong to the replicas of a service; mode %s has none", s.Mode)
	}
	for i := range s.Volumes {
		if v := s.Volumes[i].Local; v != nil && (v.Reclaim == ReclaimDelete) != (local.Reclaim == ReclaimDelete) {
			c.add(vp+".local.reclaim", "say the same in all of them, or use empty for what may go with the instance",
				"the local volumes of a service are kept, or deleted, together")
			break
		}
	}
	if n := s.Update.MaxSurge; n != nil && *n > 0 {
		c.add(p+".update.maxSurge", "leave it out; maxUnavailable says how many are replaced at once",
			"two instances never have one local volume, so that a new one starts only when the old one has ended")
	}
}

// snapshots checks how copies of the local volumes are made.
func (c *checker) snapshots(path string, service *ServiceSpec) {
	if service.Snapshots == nil {
		return
	}
	if !service.KeepsData() {
		c.add(path, "leave it out, or give the service a local volume", "a service without local volumes has nothing to copy")
	}
	if n := service.Snapshots.Keep; n < 0 || n > MaxSnapshotsKept {
		hint := fmt.Sprintf("leave it out for %d", DefaultSnapshotsKept)
		c.add(path+".keep", hint, "%d is out of range; from 1 to %d is allowed", n, MaxSnapshotsKept)
	}
	if service.Snapshots.Keep != 0 && service.Snapshots.Schedule == "" {
		c.add(path+".keep", "add a schedule, such as 0 3 * * *, or leave it out",
			"only snapshots of a schedule are deleted by themselves; there is none")
	}
	c.snapshotExport(path, service.Snapshots)
	if t := time.Duration(service.Snapshots.MaxPause); t < 0 || t > MaxSnapshotPause {
		c.add(path+".maxPause", "leave it out for "+DefaultSnapshotPause.String(), "%s is too long; up to %s is allowed", t, MaxSnapshotPause)
	}
	if h := service.Snapshots.Before; h != nil {
		if len(h.Command) == 0 || h.Command[0] == "" {
			c.add(path+".before.command", "", "a command is missing")
		}
		if t := h.Within(); t < time.Second || t > 10*time.Minute {
			c.add(path+".before.timeout", "", "%s is out of range; from 1s to 10m is allowed", t)
		}
	}
}

func (c *checker) snapshotExport(path string, snaps *Snapshots) {
	export := snaps.Export
	if export == nil {
		return
	}
	path += ".export"
	if snaps.Schedule == "" {
		c.add(path, "add a schedule, such as 0 3 * * *, or leave it out",
			"only snapshots of a schedule are sent away by themselves; there is none")
	}
	if err := skerry.CheckName(export.To); err != nil {
		c.add(path+".to", "the operator of the site knows the names of its places", "%q is not the name of a place: %v", export.To, err)
	}
	if export.Keep < 0 || export.Keep > MaxSnapshotsSent {
		c.add(path+".keep", "leave it out for as many as stay at the site", "%d is out of range; from 1 to %d is allowed", export.Keep,
			MaxSnapshotsSent)
	}
	if len(export.Recipients) > maxRecipients {
		c.add(path+".recipients", "", "at most %d are allowed", maxRecipients)
	}
	for i, r := range export.Recipients {
		if !isRecipient(r) {
			c.add(fmt.Sprintf("%s.recipients[%d]", path, i), "age-keygen prints one; it begins with age1", "%.100q is not an age public key", r)
		}
	}
}

// isRecipient reports whether a text has the form of a public key of age; who encrypts checks its checksum.
func isRecipient(text string) bool {
	rest, ok := strings.CutPrefix(text, "age1")
	return ok && len(rest) == 58 && strings.Trim(rest, "qpzry9x8gf2tvdw0s3jn54khce6mua7l") == ""
}
