package passwd

import (
	"slices"
	"strings"
	"testing"
)

const (
	users  = "root:x:0:0:root:/root:/bin/sh\nmule:x:1234:5678:Mule:/:/bin/sh\n# no user\nbad:x:-1:9:::\ndup:x:7:8:::\ndup:x:9:9:::\n42:x:1:1:::\n"
	groups = "root:x:0:\nstable:x:5678:mule\nherd:x:777:cow,mule\nwild:x:x:mule\n"
)

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		user     string
		uid, gid uint32
		more     []uint32
		err      string
	}{
		{"root", 0, 0, nil, ""},
		{"mule", 1234, 5678, []uint32{777}, ""},
		{"mule:0", 1234, 0, nil, ""},
		{"mule:herd", 1234, 777, nil, ""},
		{"1234", 1234, 5678, []uint32{777}, ""},
		{"999", 999, 0, nil, ""},
		{"999:888", 999, 888, nil, ""},
		{"42", 1, 1, nil, ""}, // a name of digits is a name where there is one
		{"dup", 7, 8, nil, ""},
		{"nobody", 0, 0, nil, "is not in /etc/passwd"},
		{"bad", 0, 0, nil, "is not in /etc/passwd"},
		{"mule:crowd", 0, 0, nil, "is not in /etc/group"},
		{"mule:wild", 0, 0, nil, "is not in /etc/group"},
		{"4294967295", 0, 0, nil, "is not in /etc/passwd"},
		{":", 0, 0, nil, "is not in /etc/passwd"},
	} {
		u, err := Resolve(c.user, strings.NewReader(users), strings.NewReader(groups))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v instead of %q", c.user, err, c.err)
			}
			continue
		}
		if err != nil || u.UID != c.uid || u.GID != c.gid || !slices.Equal(u.Groups, c.more) {
			t.Errorf("%s: %+v, %v", c.user, u, err)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("mule:herd", users, groups)
	f.Add("0", "", "")
	f.Add("a", "a:b", strings.Repeat("x", 70000))
	f.Fuzz(func(t *testing.T, user, users, groups string) {
		u, err := Resolve(user, strings.NewReader(users), strings.NewReader(groups))
		if err == nil && (u.UID > maxID || u.GID > maxID || len(u.Groups) > 64) {
			t.Errorf("%q is %+v", user, u)
		}
	})
}
