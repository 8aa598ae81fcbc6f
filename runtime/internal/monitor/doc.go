// Package monitor keeps tasks under conmon, the small C supervisor: it owns the state directory of a driver (a record,
// a bundle and a log per task), starts conmon, and learns from it how a task ended, whether or not this process was
// there. It never decides what runs. The drivers oci and native import it.
//
//	<dir>/tasks/<id>/task.json     the record, replaced as a whole
//	<dir>/tasks/<id>/...           the bundle: config, rootfs, conmon's pipes
//	<dir>/tasks/<id>/log/log       what conmon writes; keep, old: see keep.go
//	<dir>/tasks/<id>/previous/     the log of the attempt before
//	<dir>/exits/<id>               the exit status, written by conmon
package monitor
