package spec

import (
	"strings"
	"testing"
)

func TestNFSVolume(t *testing.T) {
	for _, c := range []struct {
		volume NFSVolume
		want   string // a part of the problem; empty: none
	}{
		{NFSVolume{Server: "nas.example.com", Path: "/export/media"}, ""},
		{NFSVolume{Server: "2001:db8::1", Path: "/", Version: "4.1", Options: []string{"hard", "nconnect=4"}}, ""},
		{NFSVolume{Server: "192.0.2.1", Path: "/x", Version: "3", Options: []string{"nolock", "timeo=10"}}, ""},
		{NFSVolume{Path: "/x"}, "is not a server"},
		{NFSVolume{Server: "nas,exec", Path: "/x"}, "is not a server"},
		{NFSVolume{Server: "nas:/x", Path: "/x"}, "is not a server"},
		{NFSVolume{Server: "-o", Path: "/x"}, "is not a server"},
		{NFSVolume{Server: "nas", Path: "x"}, "is not the path of an export"},
		{NFSVolume{Server: "nas", Path: "/x/../etc"}, "is not the path of an export"},
		{NFSVolume{Server: "nas", Path: "/x/"}, "is not the path of an export"},
		{NFSVolume{Server: "nas", Path: "/x\ny"}, "is not the path of an export"},
		{NFSVolume{Server: "nas", Path: "/x", Version: "2"}, "nfs.version"},
		{NFSVolume{Server: "nas", Path: "/x", Version: "3"}, "locks of version 3"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"nolock"}}, "locks of its own"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"suid"}}, "is none of the options"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"soft,addr=192.0.2.9"}}, "is none of the options"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"timeo=1,addr=192.0.2.9"}}, "timeo is a number"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"soft=1"}}, "has no value"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"hard", "soft"}}, "contradicts"},
		{NFSVolume{Server: "nas", Path: "/x", Options: []string{"timeo=10", "timeo=20"}}, "repeats"},
	} {
		err := c.volume.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, expected %q", c.volume, err, c.want)
		}
	}
}

func TestNFSGrant(t *testing.T) {
	for _, c := range []struct {
		grant, server, path string
		want                bool
	}{
		{"nas", "nas", "/x", true},
		{"nas", "NAS", "/", true},
		{"nas:/", "nas", "/x", true},
		{"nas:/export/media", "nas", "/export/media", true},
		{"nas:/export/media", "nas", "/export/media/films", true},
		{"nas:/export/media", "nas", "/export/media2", false},
		{"nas:/export/media", "nas", "/export", false},
		{"nas:/export/media", "other", "/export/media", false},
		{"[2001:db8::1]:/x", "2001:db8::1", "/x/y", true},
	} {
		grant, err := ParseNFSGrant(c.grant)
		v := &NFSVolume{Server: c.server, Path: c.path}
		if got := grant.Covers(v); err != nil || got != c.want {
			t.Errorf("%s covers %s: got %t, %v, expected %t", c.grant, v.Source(), got, err, c.want)
		}
	}
	// Version 3 has the server resolve a path, and whoever writes to an export can make a link there.
	for text, want := range map[string]bool{"nas": true, "nas:/export": false, "nas:/export/media": true} {
		grant, err := ParseNFSGrant(text)
		v := &NFSVolume{Server: "nas", Path: "/export/media", Version: "3", Options: []string{"nolock"}}
		if got := grant.Covers(v); err != nil || got != want {
			t.Errorf("%s covers %s by version 3: got %t, %v, expected %t", text, v.Source(), got, err, want)
		}
	}
	for _, bad := range []string{"", ":/x", "nas:x", "nas:/x/../y", "2001:db8::1", "[nas]:/x", "[::1:/x", "a b", "nas:/x "} {
		if grant, err := ParseNFSGrant(bad); err == nil {
			t.Errorf("%q was read as %v, expected a refusal", bad, grant)
		}
	}
}

func FuzzParseNFSGrant(f *testing.F) {
	for _, s := range []string{"nas", "nas:/x", "[::1]:/x", "nas:/x/../y", "[::1]", ":/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		grant, err := ParseNFSGrant(text)
		if err != nil {
			return
		}
		again, err := ParseNFSGrant(grant.String())
		v := &NFSVolume{Server: grant.Server, Path: grant.Path}
		if again != grant || err != nil || v.Check() != nil || !grant.Covers(v) {
			t.Errorf("%q is %+v, and again %+v, %v; the volume: %v", text, grant, again, err, v.Check())
		}
	})
}
