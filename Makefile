# Everything is pinned as a Go module: the libraries in go.mod, the lint tools in
# testdata/tools, the real peers in testdata/peers. Nothing has to be installed but
# Go, git, make and gcc (for the race detector).

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Where the real peers are built, and where tests look for them.
PEERS = .cache/peers
# The packages that hold end-to-end tests (build tag e2e).
E2E = ./cmd/spillway $(if $(wildcard testdata/e2e/*.go),./testdata/e2e/...)
# User Mode Linux, where it lies in the cache; else linux.uml of the PATH is used.
UML = $(wildcard $(CURDIR)/.cache/uml/usr/bin/linux.uml)
E2EENV = SPILLWAY_BIN="$(CURDIR)/bin/spillway" SPILLWAY_PEERS="$(CURDIR)/$(PEERS)" SPILLWAY_UML="$(UML)" $(SHIPPED)
# The modules beside the product's own.
MODULES = testdata/tools testdata/peers/prometheus testdata/peers/vmagent testdata/peers/telemetrygen testdata/peers/otelcol testdata/peers/senders testdata/peers/kubernetes testdata/dashboards testdata/helm testdata/browser
# Those of them that hold tests of their own.
TESTED = testdata/dashboards testdata/helm
# Runs a pinned tool on the product.
TOOL = go tool -modfile=testdata/tools/go.mod

# Building, vetting and checking compile each library once, for the program that
# is shipped: without cgo and without the paths of this machine.
SHIPPED = CGO_ENABLED=0 GOFLAGS="$(strip $(shell go env GOFLAGS) -trimpath)"

# How long one fuzz target runs, and what `make fuzz` selects.
FUZZTIME ?= 1m
FUZZ     ?= .
# Which benchmarks run, how long each, how often, and in which packages.
BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1
PKG       ?= ./...

.DEFAULT_GOAL := help
.PHONY: help build run test chart-files e2e browser peers lint licences fuzz bench bench-peers governor-experiment profile golden clean check

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' Makefile

build: ## Build bin/spillway.
	$(SHIPPED) go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/spillway ./cmd/spillway

run: build ## Build and start spillway on testdata/quickstart, with its data under ./data.
	bin/spillway serve --config.file=testdata/quickstart/spillway.yaml

test: ## Run the tests that need no other program, with the race detector.
	CGO_ENABLED=1 go test -race -timeout 10m ./...
	@set -e; for m in $(TESTED); do echo "go -C $$m test ./..."; $(SHIPPED) go -C $$m test -timeout 10m ./...; done

e2e: build peers ## Run the tests that talk to the real peers.
	$(E2EENV) go test -tags e2e -count 1 -timeout 20m $(E2E)
	@set -e; for m in $(TESTED); do echo "go -C $$m test -tags e2e ./..."; $(E2EENV) go -C $$m test -tags e2e -count 1 -timeout 15m ./...; done
	@$(MAKE) --no-print-directory browser

# Where `make browser` leaves its screenshots; they are there to be looked at.
SCREENSHOTS ?= $(CURDIR)/.cache/screenshots
browser: build ## Try the page in headless Chromium; PICTURE=1 makes README's picture anew.
	@testdata/browser/chromium.sh
	cd testdata/browser && go vet . && SPILLWAY_BIN="$(CURDIR)/bin/spillway" SCREENSHOTS="$(SCREENSHOTS)" \
		go test -count 1 -v -timeout 15m . $(if $(PICTURE),-update)

peers: ## Build the real peers where they are missing or their pin changed.
	@testdata/peers/build.sh $(PEERS)

lint: ## Check form, vet, staticcheck, tidy modules and licences.
	@files=$$(find . -name '.?*' -prune -o -name '*.go' -print | xargs gofmt -l); [ -z "$$files" ] || { echo "not formatted, run gofmt -w on:"; echo "$$files"; exit 1; }
	$(SHIPPED) go vet -tags e2e ./... $(E2E)
	$(SHIPPED) $(TOOL) staticcheck -tags e2e ./... $(E2E)
	@set -e; for m in $(TESTED); do echo "vet and staticcheck in $$m"; $(SHIPPED) go -C $$m vet -tags e2e ./...; \
		(cd $$m && $(SHIPPED) go tool -modfile=$(CURDIR)/testdata/tools/go.mod staticcheck -tags e2e ./...); done
	go mod tidy -diff
	@set -e; for m in $(MODULES); do echo "go -C $$m mod tidy -diff"; go -C $$m mod tidy -diff; done
	@$(MAKE) --no-print-directory licences

# Without GOROOT the checker may take every package for a part of Go and find
# nothing to object to, so it has to show first that it can object.
LICENCES = GOROOT="$$(go env GOROOT)" $(SHIPPED) $(TOOL) go-licenses check \
	--logtostderr=false --stderrthreshold=ERROR --log_file=/dev/null
licences: ## Check that the binary links no library whose licence forbids or restricts it.
	@if $(LICENCES) --disallowed_types=notice github.com/cespare/xxhash/v2 2>/dev/null; then \
		echo "the licence checker does not see the licence of cespare/xxhash, so it would pass anything"; exit 1; fi
	$(LICENCES) --disallowed_types=forbidden,restricted,unknown ./cmd/spillway

fuzz: ## Run every fuzz target for FUZZTIME (1m, or 1000x inputs) each; FUZZ=Name selects.
	@testdata/tools/fuzz.sh '$(FUZZTIME)' '$(FUZZ)'

bench: ## Run the benchmarks that match BENCH (all), COUNT (1) times for BENCHTIME (1s) in PKG (./...).
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(PKG)

# What `make bench-peers` is told beside the programs: see testdata/bench/README.md.
BENCHFLAGS ?=
GROWTH     ?=
KEEP       ?=
bench-peers: build peers ## Measure the bars beside vmagent and Prometheus; GROWTH=1: how cost grows; KEEP=1 writes testdata/bench/README.md.
	go test ./testdata/bench
	go build -o .cache/bench ./testdata/bench
	.cache/bench -peers $(PEERS) $(if $(GROWTH),-growth) $(if $(KEEP),-keep) $(BENCHFLAGS)

# What `make governor-experiment` runs: see governor/GOVERNOR.md.
PARTS  ?= trade,core,step
REAL   ?= Fairness|CgroupV2|Memory|NothingLost|Collector
RUNS   ?= 5
LENGTH ?= 30
governor-experiment: build peers ## Measure the governor in real cgroups (half an hour, root); PARTS, REAL, RUNS and LENGTH (seconds) select.
	go build -o .cache/experiment ./testdata/governor/experiment
	@status=0; \
	[ -z "$(PARTS)" ] || .cache/experiment -parts '$(PARTS)' -runs $(RUNS) -seconds $(LENGTH) -out .cache/governor || status=1; \
	[ -z "$(REAL)" ] || SPILLWAY_EXPERIMENT=1 $(E2EENV) go test -tags e2e -count 1 -timeout 30m -v -run '^TestGovernor($(REAL))$$' ./testdata/e2e || status=1; \
	exit $$status

profile: build ## Record CPU and allocation profiles of the bench load into .cache/profile.
	go build -o .cache/bench ./testdata/bench
	.cache/bench -profile .cache/profile -items 20000000 -series 100000 $(BENCHFLAGS)

chart-files: ## Copy dashboards and rules to where Helm packages them.
	@mkdir -p helm/spillway/files/dashboards helm/spillway/files/rules
	rm -f helm/spillway/files/dashboards/*.json helm/spillway/files/rules/*.yaml
	cp dashboards/*.json helm/spillway/files/dashboards/
	cp dashboards/rules/*.yaml helm/spillway/files/rules/

golden: ## Rewrite the golden files from what the code does now; read the difference.
	@set -e; dirs=$$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' cmd ingester relabel policy ratecontrol governor 2>/dev/null | \
	xargs -r -n 1 dirname | sort -u | sed 's|^|./|'); \
	[ -n "$$dirs" ] || { echo "no test has an -update flag"; exit 0; }; \
	go test -count 1 $$dirs -update
	go -C testdata/dashboards test -count 1 -run TestFilesMatch . -update
	go -C testdata/helm test -count 1 -run 'Golden|ValuesTable' . -update

clean: ## Remove what was built; keeps ./data.
	rm -rf bin .cache

check: test e2e lint ## Run what a change must pass.
