# make check is what CI runs. Everything else is a part of it, or a longer version of one.

GO      ?= go
SHELL   := /bin/bash -o pipefail
COUNT   ?= 6
BENCH   ?= .
BENCHED ?= ./test/bench
FUZZTIME ?= 10s
SEEDS   ?= 100000
TABLES  ?= 10000
CUTS    ?= 50
PAIRS   ?= 20
ROUNDS  ?= 200
ROTATIONS ?= 20
FAILURES ?= 50
SCENARIOS ?= 1000
NODES   ?= 64
SHOTS   ?= screenshots
RANKS   ?= 0
SEED    ?=

.PHONY: check fmt vet lint build test race arch netlab cuts pairs conformance sim many tables trees treefaults worlds faults steady scale rounds rotations fuzz bench demo python screenshots packaging generate generated dist help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

check: ## all that CI checks
	.ci/run

fmt: ## fail on files that gofmt would change
	@files=$$(gofmt -l .); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

vet: ## go vet; go.mod is tidy
	$(GO) vet ./...
	$(GO) mod tidy -diff

lint: ## staticcheck
	$(GO) tool staticcheck ./...

build: ## compile everything
	$(GO) build ./...

test: ## the tests
	$(GO) test ./...

race: ## the tests under the race detector, without the longest
	$(GO) test -race -short -timeout 20m ./...

arch: ## the project's own rules: layers, pure cores, lengths, docs
	$(GO) test -count=1 ./test/arch

netlab: ## hosts as network namespaces (root only); -count=1, since the program under test isn't in the test's cache key
	$(GO) test -count=1 -v ./test/netlab

cuts: ## CUTS=n cuts of a rail in each way under load, each held against what it may cost (root only; 6 s a cut)
	$(GO) test -count=1 -v -timeout 4h -run EveryCut ./test/netlab -cuts $(CUTS)

pairs: ## PAIRS=n pairs of runs over all rails and over the best alone on unequal rails, and one of changed rates (root only; half an hour)
	$(GO) test -count=1 -v -timeout 4h -run 'AllRails|ChangedRate' ./test/netlab -pairs $(PAIRS) -changes 1 $(ARGS)

conformance: ## every form, type, size and number of rails of 3 ranks; a sample of up to 32
	$(GO) test -count=1 -v -timeout 4h ./test/conformance -all

sim: ## SEEDS=n schedules of the cores and each two steps cut, or SEED=s: one again, with its events (of many ranks: RANKS=n)
	$(GO) test -count=1 -v -timeout 4h ./test/sim $(if $(SEED),-seed $(SEED) -ranks $(RANKS),-seeds $(SEEDS) -every)

many: ## SEEDS=n groups of 64 and of 256 ranks that form, operate and lose ranks
	$(GO) test -count=1 -v -timeout 12h -run Many ./collective/view ./test/sim -seeds $(SEEDS)

tables: ## TABLES=n schedules in which the balancer's measured tables are agreed on and settle, or SEED=s: one again
	$(GO) test -count=1 -v -timeout 4h ./test/sim -measured $(if $(SEED),-seed $(SEED),-seeds $(TABLES))

trees: ## SEEDS=n groups of an aggregation tree in random steps, also with each rule taken out, or SEED=s: one again, with its events
	$(GO) test -count=1 -v -timeout 4h -run 'Groups|Rule' ./collective/sharp $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

treefaults: ## FAILURES=n times an aggregation node is killed, cut, stopped and closed in mid-operation, SCENARIOS=n random scenarios of trees, and FAILURES=n failures of processes on hosts (root only)
	$(GO) test -count=1 -v -timeout 4h -run 'ATreeIsMadeAnewSoon|OutliveTheirTree' . -tree-failures $(FAILURES)
	$(GO) test -count=1 -v -timeout 4h -run TestTreesUnderFaults . $(if $(SEED),-seed $(SEED),-seeds $(SCENARIOS))
	$(GO) test -count=1 -v -timeout 4h -run 'AnAggregationNodeFails|JobsShareTrees' ./test/netlab -tree-failures $(FAILURES) -tree-rounds $(FAILURES)

worlds: ## the balancer's score in simulated networks; ARGS=-update replaces the committed one
	$(GO) test -count=1 -v -timeout 1h -run Worlds ./collective/balance -worlds $(ARGS)

faults: ## SEEDS=n random scenarios on whole nodes, or SEED=s: one again, with what happens
	$(GO) test -count=1 -v -timeout 4h -run Random ./test/faults $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

steady: ## 100,000 small and 200 large operations leave nothing behind; 1,000 idle communicators
	$(GO) test -count=1 -v -timeout 1h ./test/steady -long

scale: ## one process with NODES=n nodes, by default 64, and as many processes: what forming takes, and each collective; ARGS=-loopback
	$(GO) test -count=1 -v -timeout 1h -run Figures ./test/scale -nodes $(NODES) $(ARGS)
	$(GO) test -count=1 -v -timeout 20m -run Processes ./test/scale -processes $(NODES)

rounds: ## ROUNDS=n times a rank is lost and comes back, or leaves (3 s a round)
	$(GO) test -count=1 -v -timeout 4h -run TestKillAndRejoinLeaveNothingBehind . -rounds $(ROUNDS)
	$(GO) test -count=1 -v -timeout 12h ./test/rounds -rounds $(ROUNDS) -leavings $(ROUNDS)

rotations: ## ROTATIONS=n times all keys of processes that add up, form and lose connections are rotated (7 s a rotation)
	$(GO) test -count=1 -v -timeout 4h ./test/rotation -rotations $(ROTATIONS)

fuzz: ## each fuzz test for FUZZTIME
	@GO=$(GO) .ci/fuzz $(FUZZTIME)

bench: ## Go benchmarks BENCH of BENCHED, COUNT times, into bench.txt for benchstat
	$(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) $(BENCHED) | tee bench.txt
	$(GO) tool benchstat bench.txt

demo: ## four nodes and two rails on this host
	$(GO) run ./cmd/node demo

python: ## the Python package: built, installed into a folder and tested (needs a C compiler; torch's part needs python3-torch)
	.ci/python

screenshots: ## pictures of the page into the directory SHOTS, of a stage and of nodes with 2 and 64 members (needs Chromium; five minutes)
	@mkdir -p $(SHOTS)
	$(GO) test -count=1 -v -timeout 30m -run Shots ./test/observe -shots $(abspath $(SHOTS))

packaging: ## the Kubernetes manifest by Kubernetes' types, the Containerfile by BuildKit's linter (needs the module proxy)
	cd cmd/node/packaging/lint && $(GO) test -count=1 -v .

generate: ## protobuf code and assembly (needs protoc, and the module proxy for avo)
	$(GO) generate ./...

generated: ## fail if generated files differ from what generate makes
	.ci/generated

dist: ## static binaries for amd64 and arm64 in dist/, the same bytes each time, with checksums
	@mkdir -p dist
	@for arch in amd64 arm64; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS= $(GO) build -trimpath -buildvcs=false \
			-ldflags="-s -w -buildid=" -o dist/polyrail-linux-$$arch ./cmd/node || exit 1; \
	done
	@cd dist && sha256sum polyrail-linux-* | tee SHA256SUMS
