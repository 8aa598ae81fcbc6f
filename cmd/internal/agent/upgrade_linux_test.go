package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// TestNoStart has the program that a worker was upgraded to be one that this machine cannot start: the installed one runs.
func TestNoStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agent")
	p := upgrade.Program{Digest: "sha256:" + strings.Repeat("a", 64), Version: "v2", Size: 7}
	state, err := json.Marshal(upgrade.State{Base: upgrade.Base{Path: self, Size: st.Size(), ModTime: st.ModTime().UTC()}, Current: &p})
	err = errors.Join(err, os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "state.json"), state, 0o600),
		os.WriteFile(filepath.Join(path, "skerry-"+strings.Repeat("a", 16)), []byte("garbage"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	dir := upgrade.Open(path, "")
	if at, err := dir.Choose(self); err != nil || at == "" {
		t.Fatalf("%q is chosen, %v", at, err)
	}
	if stopped, err := launch(t.Context(), dir, t.TempDir(), slog.New(slog.DiscardHandler)); stopped || err != nil {
		t.Errorf("stopped %v, %v", stopped, err)
	}
}

// TestRefuseOnTrial has an order come to nothing during a trial: the state is another process's to write.
func TestRefuseOnTrial(t *testing.T) {
	p := &programs{dir: upgrade.Open(filepath.Join(t.TempDir(), "agent"), "")}
	t.Setenv("SKERRY_TRIAL", "v2")
	if err := p.Refuse(wire.AgentOrder{Seq: 2}, "no such image"); !errors.Is(err, worker.ErrLater) {
		t.Error(err)
	}
	if s, err := p.dir.State(); err != nil || s.Ordered != nil {
		t.Errorf("%+v is noted, %v", s.Ordered, err)
	}
}

// TestSeenDone sees a job that ended during a trial as what it is.
func TestSeenDone(t *testing.T) {
	s := seen(&role.Status{Instances: []wire.Observation{{ID: "job", State: skerry.Terminated},
		{ID: "web", State: skerry.Running, Ready: true}, {ID: "bad", State: skerry.Failed}}})
	if len(s.Done) != 1 || s.Done[0] != "job" || len(s.Ready) != 1 || s.Ready[0] != "web" {
		t.Errorf("%+v", s)
	}
}

// TestStageAtStart has an order come again before the link to the cluster is up: the new program has to reach it all the same.
func TestStageAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v2")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '{\"client\":\"v2\"}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	asked := 0
	p := &programs{dir: upgrade.Open(filepath.Join(t.TempDir(), "agent"), ""), ask: make(chan struct{}, 1)}
	p.status = func(context.Context) (role.Status, error) {
		asked++
		return role.Status{Parent: &role.ParentStatus{Connected: asked > 1}}, nil
	}
	if err := p.Stage(t.Context(), path, wire.AgentOrder{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if s, err := p.dir.State(); err != nil || s.Trial == nil || !s.Trial.Want.Connected {
		t.Errorf("the trial is %+v, %v", s.Trial, err)
	}
}
