package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

func runPublished(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := publishedCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.Execute()
	return out.String(), err
}

// TestPublished: a table as people read it, with what is damaged and what does not follow below it.
func TestPublished(t *testing.T) {
	out, err := runPublished(t, "--doc", "004", "--table", "5.24")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"004, table 5.24: latency beyond the application", "latency [ms, lower]  total processing [ms, lower]  overhead [ms, lower]\n",
		"30 Kata     57.233*", "\n* 30 Kata, latency: the text reads D7.233; 51.6 + 5.6", "45.7!", "\n! 15 Kata, total processing: 45.95 to 46.05 follows from table 5.23\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if out, err = runPublished(t, "--table", "II"); err != nil || !strings.Contains(out, "* Native, first: it is missing in the text; ") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = runPublished(t, "--doc", "000", "--table", "3"); err != nil || !strings.Contains(out, "Stress-ng Cntx switch [ops/s, higher]    84110 ±4.90%") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runPublished(t, "--table", "5.16", "-o", "json")
	var r publishedResult
	if err = errors.Join(err, json.Unmarshal([]byte(out), &r)); err != nil || len(r.Figures) != 48 || len(r.Problems) != 1 || *r.Problems[0].Figure.Value != 1.81 {
		t.Errorf("%v, %d figures, %v", err, len(r.Figures), r.Problems)
	}
	for _, args := range [][]string{{"--doc", "5"}, {"--table", "5.91"}, {"--doc", "001", "--table", "5.1"}, {"-o", "yaml"}} {
		if _, err := runPublished(t, args...); skerry.AsError(err) == nil || skerry.AsError(err).Code == skerry.CodeInternal {
			t.Errorf("%v: %v", args, err)
		}
	}
}
