package runtime

import (
	"slices"
	"testing"
)

// TestOverlay: directories come out of an overlay's options as they went in, whatever their names are.
func TestOverlay(t *testing.T) {
	odd := []string{`/a`, `/b,c:d`, `/\e\`, `/f\,g\:`}
	dirs, rest, err := OverlayDirs(append(Overlay(odd...).Options, "upperdir=/u"))
	if err != nil || !slices.Equal(dirs, odd) || !slices.Equal(rest, []string{"upperdir=/u"}) {
		t.Errorf("%q, %q, %v", dirs, rest, err)
	}
	if dirs, _, err := OverlayDirs([]string{"lowerdir=/a:/b", "lowerdir=/c"}); err != nil || !slices.Equal(dirs, []string{"/a", "/b", "/c"}) {
		t.Errorf("%q, %v", dirs, err)
	}
	for _, bad := range [][]string{nil, {"lowerdir="}, {"lowerdir=/a::/b"}} {
		if _, _, err := OverlayDirs(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
