# Skerry's entry points. On a fresh Debian 12 machine with Go, as root: make demo, make test.
SHELL := /bin/sh
export PATH := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PREFIX ?= /usr/local
FUZZTIME ?= 20s
BIN ?= bin
LDFLAGS := -s -w -X main.version=$(VERSION)
GOBUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=auto -ldflags '$(LDFLAGS)'

.DEFAULT_GOAL := build
.PHONY: help deps build kubernetes size install deb test test-systems pre-push flaky mutate timings lint demo web release bench compare bench-docs soak sim-long digests fuzz generate olddata clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

deps: ## install the Debian packages that are missing
	@scripts/deps

build: ## bin/skerry: one static binary, with the dashboard where npm is there; bin/skerry-worker: the agent alone
	@scripts/web optional
	@mkdir -p $(BIN)
	$(GOBUILD) -o $(BIN)/skerry ./cmd/skerry
	$(GOBUILD) -o $(BIN)/skerry-worker ./cmd/skerry-worker

kubernetes: ## bin/skerry-kubernetes: the nodes of a Kubernetes cluster as workers
	@mkdir -p $(BIN)
	$(GOBUILD) -o $(BIN)/skerry-kubernetes ./cmd/skerry-kubernetes

size: ## what the programs are made of, by package, and whether they have grown; ARCH=arm
	@go run ./scripts/size $(if $(ARCH),-arch $(ARCH))

install: build ## put the binary and the systemd units below PREFIX
	install -D -m 0755 $(BIN)/skerry $(DESTDIR)$(PREFIX)/bin/skerry
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 0644 packaging/systemd/*.service packaging/systemd/*.slice $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed -i 's,/usr/local/bin/,$(PREFIX)/bin/,' $(DESTDIR)$(PREFIX)/lib/systemd/system/skerry*.service

deb: build ## Debian packages of this commit and machine into bin: skerry, and skerry-worker with the agent alone
	@scripts/deb $(BIN)/skerry $$(go env GOARCH) $(VERSION) $(BIN)
	@scripts/deb $(BIN)/skerry-worker $$(go env GOARCH) $(VERSION) $(BIN)

web: deps ## the dashboard, into web/dist
	@scripts/web

test: deps web ## every check and every test; PKG=./decide/sched RUN=TestName for a part
	@scripts/test $(if $(RUN),-run '$(RUN)') $(PKG)

test-systems: deps web ## also what needs long real clocks, in the packages that have such tests
	@scripts/deps systems
	@SKERRY_SYSTEMS=1 scripts/test $(if $(RUN),-run '$(RUN)') $(or $(PKG),$$(scripts/long))

pre-push: deps ## format, vet and the tests of pure packages and of the dashboard's parts, in three minutes
	@scripts/pre-push

flaky: deps web ## repeat tests N times beside a load on every processor: PKG=./lab RUN=TestName N=50 RECORD=docs/TESTING.md
	@scripts/deps flaky
	@SKERRY_CHECKS=0 scripts/test -load -record "$(RECORD)" -n $(or $(N),10) $(if $(RUN),-run '$(RUN)') $(or $(PKG),$(error name packages: make flaky PKG=./lab))

timings: deps web ## measure on an idle machine what tests take, by which scripts/suite plans
	@scripts/test -update $(PKG)

lint: deps web ## the checks alone
	@scripts/check

mutate: ## check the tests by small wrong changes (RUN=pattern); scripts/mutate/README.md
	@go run ./scripts/mutate -run '$(RUN)'

demo: deps build ## three tiers on this machine, an application, a failure
	@scripts/demo

release: deps ## programs, archives, lists of their parts and checksums of this commit in bin/release, built twice; KEY=FILE signs
	@scripts/release

bench: build ## measure; results on the terminal and in bin/*.json
	@scripts/deps bench
	@scripts/bench

compare: build ## measure Skerry beside Docker Swarm, into bin/compare.json
	@scripts/deps compare
	@scripts/compare $(BIN)/compare.json --quick --rounds 5 --replicas 1,10,100

bench-docs: ## write the tables of docs/BENCHMARKS.md out of the reports in docs/results
	@go test -count=1 ./bench/report -run TestBenchmarksDocument -args -update

soak: build ## hours of load and failures (SOAK=1h)
	@scripts/deps systems
	@scripts/soak

sim-long: build ## fresh seeds of the simulator for an hour (SIM=1h)
	$(BIN)/skerry sim --for $${SIM:-1h}

digests: ## records, frames and timers of all scenarios, tests and 500 seeds of the simulator against sim/testdata/digests (UPDATE=1 rewrites it)
	@SKERRY_SYSTEMS=1 go test -count=1 -timeout 60m ./sim $(if $(UPDATE),-run '.' -args -update,-run 'Digest|TestScenarios')
	@$(if $(UPDATE),go test -count=1 -timeout 60m ./sim -run '.' -args -update)

fuzz: deps ## each fuzz target for FUZZTIME
	@scripts/fuzz $(FUZZTIME)

generate: ## rewrite generated files and goldens
	@scripts/generate

olddata: deps ## keep what this version writes, for the tests of later ones: NAME=2027-01-15
	@scripts/olddata $(or $(NAME),$(error give the set a name: make olddata NAME=2027-01-15))

clean: ## remove what was built
	rm -rf bin web/node_modules web/test-results
	find web/dist -mindepth 1 -not -name .gitkeep -delete
