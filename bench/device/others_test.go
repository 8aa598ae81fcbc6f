package device

import "testing"

// TestWhatIsNotRunSaysWhy gives a row for each runtime of the documents that nothing here stands for.
func TestWhatIsNotRunSaysWhy(t *testing.T) {
	nothing := func(string) string { return "" }
	all := func(program string) string { return "/opt/bin/" + program }
	for _, tt := range []struct {
		name   string
		opened []string
		look   func(string) string
		want   map[string]string
	}{
		{"nothing is installed", []string{"oci", "containerd"}, nothing, map[string]string{"kata": "containerd-shim-kata-v2 is not installed",
			"firecracker": "firecracker is not installed", "cloud-hypervisor": "cloud-hypervisor is not installed"}},
		{"all is, and nobody was told", []string{"oci"}, all, map[string]string{
			"kata":             "/opt/bin/containerd-shim-kata-v2 is there, and no class names it; add --containerd-class kata=io.containerd.kata.v2,isolation=hardware",
			"firecracker":      "/opt/bin/firecracker is there, and no driver of this program calls it",
			"cloud-hypervisor": "/opt/bin/cloud-hypervisor is there, and no driver of this program calls it"}},
		{"a class by its shim, and a driver by its name", []string{"containerd/hardware/strong", "io.containerd.kata.v2", "firecracker"}, nothing,
			map[string]string{"cloud-hypervisor": "cloud-hypervisor is not installed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := notRun(tt.opened, tt.look)
			for _, row := range got {
				if row.Skip != tt.want[row.Name] || row.Text == "" {
					t.Errorf("%+v", row)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}
