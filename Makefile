# Everything is pinned as a Go module: the libraries in go.mod, the lint tools in
# testdata/tools, the real peers in testdata/peers. Nothing has to be installed but
# Go, git, make and gcc (for the race detector).

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Where the real peers are built, and where tests look for them.
PEERS = .cache/peers
# The packages that hold end-to-end tests (build tag e2e).
E2E = ./cmd/spillway $(if $(wildcard testdata/e2e/*.go),./testdata/e2e/...)
# The modules beside the product's own.
MODULES = testdata/tools testdata/peers/prometheus testdata/peers/vmagent testdata/peers/telemetrygen testdata/peers/senders
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
.PHONY: help build run test e2e peers lint licences fuzz bench bench-peers profile golden clean check

help: ## Show the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

build: ## Build bin/spillway.
	$(SHIPPED) go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/spillway ./cmd/spillway

run: build ## Build and start spillway on testdata/quickstart, with its data under ./data.
	bin/spillway serve --config.file=testdata/quickstart/spillway.yaml

test: ## Run the tests that need no other program, with the race detector.
	CGO_ENABLED=1 go test -race -timeout 4m ./...

e2e: build peers ## Run the tests that talk to the real peers.
	SPILLWAY_BIN="$(CURDIR)/bin/spillway" SPILLWAY_PEERS="$(CURDIR)/$(PEERS)" \
		$(SHIPPED) go test -tags e2e -count 1 -timeout 8m $(E2E)

peers: ## Build the real peers where they are missing or their pin changed.
	@testdata/peers/build.sh $(PEERS)

lint: ## Check form, vet, staticcheck, tidy modules and licences.
	@files=$$(find . -name '.?*' -prune -o -name '*.go' -print | xargs gofmt -l); [ -z "$$files" ] || { echo "not formatted, run gofmt -w on:"; echo "$$files"; exit 1; }
	$(SHIPPED) go vet -tags e2e ./... $(E2E)
	$(SHIPPED) $(TOOL) staticcheck -tags e2e ./... $(E2E)
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

# Go runs one fuzz target at a time.
fuzz: ## Run every fuzz target for FUZZTIME (1m) each; FUZZ=Name selects.
	@set -e; grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd ingester relabel policy ratecontrol governor 2>/dev/null | \
	sed -E 's|^(.*)/[^/]*:func (.*)$$|\1 \2|' | grep -E '$(FUZZ)' | sort | while read -r dir name; do \
		echo "fuzz $$name in $$dir for $(FUZZTIME)"; \
		go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "./$$dir" </dev/null; \
	done

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

profile: build ## Record CPU and allocation profiles of the bench load into .cache/profile.
	go build -o .cache/bench ./testdata/bench
	.cache/bench -profile .cache/profile -items 20000000 -series 100000 $(BENCHFLAGS)

golden: ## Rewrite the golden files from what the code does now; read the difference.
	@set -e; dirs=$$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' cmd ingester relabel policy ratecontrol governor 2>/dev/null | \
	xargs -r -n 1 dirname | sort -u | sed 's|^|./|'); \
	[ -n "$$dirs" ] || { echo "no test has an -update flag"; exit 0; }; \
	go test -count 1 $$dirs -update

clean: ## Remove what was built; keeps ./data.
	rm -rf bin .cache

check: test e2e lint ## Run what a change must pass.
