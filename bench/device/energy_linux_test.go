package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMeter(t *testing.T) {
	sys := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openMeter(sys, "", ""); err == nil || !strings.Contains(err.Error(), "--meter") {
		t.Error(err)
	}
	// A sensor of power, as that of a board.
	write("class/hwmon/hwmon0/power1_input", "5000000\n")
	m, err := openMeter(sys, "", "")
	if err != nil {
		t.Fatal(err)
	}
	for v := 0.0; v <= 0; {
		if v, err = m.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m.close()
	// Two packages, of which the parts are not counted again; one counter begins anew.
	for name, uj := range map[string]string{"intel-rapl:0": "9000000", "intel-rapl:1": "1000000", "intel-rapl:0:0": "7"} {
		write("class/powercap/"+name+"/energy_uj", uj)
		write("class/powercap/"+name+"/max_energy_range_uj", "10000000")
	}
	if m, err = openMeter(sys, "", ""); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	write("class/powercap/intel-rapl:0/energy_uj", "1000000")
	write("class/powercap/intel-rapl:1/energy_uj", "4000000")
	write("class/powercap/intel-rapl:0:0/energy_uj", "99")
	if v, err := m.read(t.Context()); err != nil || v != 5 {
		t.Error(v, err)
	}
	if m, err = openMeter(sys, "echo 12.5", ""); err != nil {
		t.Fatal(err)
	}
	if v, err := m.read(t.Context()); err != nil || v != 12.5 {
		t.Error(v, err)
	}
	if m, err = openMeter(sys, "echo broken", ""); err != nil {
		t.Fatal(err)
	}
	if v, err := m.read(t.Context()); err == nil {
		t.Error("broken is", v)
	}
}
