//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/web"
)

// TestDashboardInFirefox has another browser than Chromium log in, look at a few pages and deploy an application.
func TestDashboardInFirefox(t *testing.T) {
	testenv.Long(t, "TestDashboard, in Chromium")
	firefox, err := exec.LookPath("firefox-esr")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the dashboard in Firefox", Why: "there is no firefox-esr; scripts/deps systems installs it"})
	}
	if _, err := os.Stat("../web/node_modules/.installed"); err != nil || !web.Built() {
		t.Skip(&testenv.Unsupported{What: "the dashboard in Firefox", Why: "it is not built; make web does"})
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the dashboard in Firefox", Why: "there is no busybox; scripts/deps installs it"})
	}
	p := newProcesses(t, "up/worker")
	p.start(&role{name: "up", args: []string{"up", "--data", p.data("up"), "--name", "w1", "--run-dir", p.data("run"),
		"--cgroup-parent", p.cgroup(), "--add-context", "", "--address", "127.0.0.1", "--location", "54.32,10.14"}})
	root := login(t, dashboardRoot, p.data("up/root"))
	pushShell(t, root, p.dir, "demo/web:1", busybox)
	await(t, "the worker is there", func() bool {
		list, err := root.Clusters(t.Context())
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) == 1
	})
	play(t, []string{"FIREFOX=" + firefox, "SKERRY_CONTROL=", "SKERRY_STRANGER=none", "HOME=" + t.TempDir(),
		"SKERRY_ROOT_PASSWORD=" + password(t, p.data("up/root")), "SKERRY_SITE_PASSWORD=" + password(t, p.data("up/cluster"))},
		"--config", "playwright.firefox.config.ts")
}
