package apps

import "skerry.dev/skerry"

// Limits of what an application may take in records, as JSON with what its images mean, where many a character takes six bytes. A store
// takes records of 1 MiB. That of an application may hold two versions of its services, and that of an instance three of its own.
const (
	maxAppRecord     = 448 << 10
	maxServiceRecord = 320 << 10
	maxSecretRecord  = 960 << 10 // with all its versions
	maxStoredApp     = 960 << 10 // with its runs and what was taken back
)

// fitApp encodes an application. As far as that would be too large, it forgets runs that are over, the oldest first.
func fitApp(a *App) []byte {
	data := mustJSON(a)
	for keep := maxRuns / 2; len(data) > maxStoredApp && keep > 0; keep /= 2 {
		for name, list := range a.Runs {
			n := 0
			for len(list)-n > keep && list[n].Result != "" {
				n++
			}
			a.Runs[name] = list[n:]
		}
		data = mustJSON(a)
	}
	return data
}

// checkSize refuses an application whose records might become larger than a store takes.
func checkSize(a *App) error {
	tooLarge := func(path, what string, n, most int) error {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Problems: []skerry.Problem{{
			Path: path, Message: what + " takes " + itoa(n) + " bytes as it is stored; at most " + itoa(most) + " are allowed",
			Hint: "put large files into an image, or split the application"}}}
	}
	for i := range a.Manifest.Spec.Services {
		if n := len(mustJSON(&a.Manifest.Spec.Services[i])); n > maxServiceRecord {
			return tooLarge("spec.services["+itoa(i)+"]", "the service", n, maxServiceRecord)
		}
	}
	if n := len(mustJSON(&a.Manifest)) + len(mustJSON(a.Digests)); n > maxAppRecord {
		return tooLarge("spec", "the application", n, maxAppRecord)
	}
	return nil
}
