# golock: build, test, lint, bench. "make help" lists the targets.

GO      ?= go
VERSION ?= $(shell packaging/version)
# The maintainer that packages name.
MAINTAINER ?= golock maintainers <golock@example.org>
export MAINTAINER GO
# -E: the process begins in internal/entry, which saves what the caller blocked and ignored.
LDFLAGS := -s -w -E golock/internal/entry.start -X golock/cli.version=$(VERSION)
ARCHS   ?= amd64 arm64 arm 386
DIST    ?= dist
TOOL    := $(GO) tool -modfile=.ci/tools.mod

# Processes built with the race detector would sleep a second at their end.
export GORACE := atexit_sleep_ms=0

.PHONY: help build install dist deb deps test test-deep test-short fuzz lint bench campaign cluster world clean

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 14

# bin/golock-lean has no clients of servers. Installed, it becomes the full program when it needs one (cli/full.go).
build: ## the program, static, in bin/golock, and a lean one for make install
	@packaging/check-go
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/golock .
	CGO_ENABLED=0 $(GO) build -trimpath -tags lean -ldflags '$(LDFLAGS)' -o bin/golock-lean .

# packaging/install reads DESTDIR and PREFIX from the environment, so they may contain any character.
install: ## programs, manual, pages and completion into PREFIX (default /usr/local); after make build
	@tree=$$(mktemp -d) && trap 'rm -rf "$$tree"' EXIT && \
		packaging/stage bin/golock bin/golock-lean "$$tree" && packaging/install "$$tree"

dist: ## for linux amd64, arm64, arm, 386: the static program, and an archive of both programs, with SHA256SUMS, in dist/
	@packaging/check-go
	packaging/dist '$(LDFLAGS)' '$(DIST)' $(VERSION) $(ARCHS)

deb: build ## a Debian package of bin/golock in dist/
	packaging/deb $(VERSION)

deps: ## Debian's packages that tests and benchmarks use, if missing
	.ci/deps

# test-run is compiled with the flags of the programs and tests, so that they share one build cache.
test test-deep: deps
	@packaging/check-go
	@mkdir -p bin && CGO_ENABLED=0 $(GO) build -trimpath -o bin/test-run ./test/run
	@bin/test-run

test: ## everything, on real servers; 5 to 10 minutes
test-deep: ## the same with all combinations, before a release; hours
test-deep: export LOCKTEST_DEPTH ?= 1

test-short: ## what needs no server, no packages and no minutes
	@packaging/check-go
	$(GO) test ./...

fuzz: ## each fuzz target for a minute
	.ci/fuzz 60s

lint: ## formatting, vet, the linters of .ci/golangci.yml
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'ed: $$out"; exit 1; }
	$(GO) vet -tags integration,cluster,world ./...
	$(GO) vet -tags lean,integration ./cli ./locks/open
	GOARCH=arm64 $(GO) vet . ./signals && GOARCH=arm $(GO) vet .
	cd bench && $(GO) vet ./... && $(GO) test ./...
	$(TOOL) golangci-lint run -c .ci/golangci.yml ./...

bench: ## beside flock, setlock, sem, etcdctl ..., and with long queues; 15 minutes; writes docs/benchmarks.md
	.ci/deps bench
	cd bench && $(GO) run . -check -out ../docs $(BENCHFLAGS)

# With STORE or ROUND the page is not written. To repeat one round: make campaign STORE=redis ROUND=0x1234
campaign: deps ## random faults on every store for DURATION (10m) each; SEED, STORE, ROUND; writes docs/reliability.md
	LOCKTEST_CAMPAIGN=$(or $(DURATION),10m) LOCKTEST_SEED=$(SEED) LOCKTEST_STORE=$(STORE) LOCKTEST_ROUND=$(ROUND) \
	LOCKTEST_PAGE=$(if $(STORE)$(ROUND),,$(CURDIR)/docs/reliability.md) \
	$(GO) test -tags integration -count 1 -timeout 0 -run '^TestCampaign$$' -v ./test/campaign

cluster: deps ## faults and partitions of a real cluster on three hosts; STORE (etcd); prints a table; minutes
	LOCKTEST_STORE=$(or $(STORE),etcd) $(GO) test -tags cluster -count 1 -timeout 0 -run '^TestCluster$$' -v ./test/cluster

# The packages of the guest are fetched once; make clean forgets them. RUN=TestCron runs one of the tests.
world: deb ## the package in Debian guests (QEMU): systemd, cron, reboots, suspend, NFS, SMB; RUN; an hour without KVM
	test/world/build dist/golock_$(VERSION)_*.deb bin/world
	LOCKTEST_IMAGE=$(CURDIR)/bin/world $(GO) test -tags world -count 1 -timeout 0 -run '$(or $(RUN),.)' -v ./test/world

clean:
	rm -rf bin dist
