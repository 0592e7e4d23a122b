# golock: build, test, lint, bench. "make help" lists the targets.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOL    := $(GO) tool -modfile=.ci/tools.mod

# Processes built with the race detector would sleep a second at their end.
export GORACE := atexit_sleep_ms=0

.PHONY: help build install deps test test-short fuzz lint bench clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

build: ## the program, static, in bin/golock
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/golock .

install: ## bin/golock into PREFIX (default /usr/local); after make build
	install -D -m 755 bin/golock $(DESTDIR)$(or $(PREFIX),/usr/local)/bin/golock

deps: ## Debian's packages that tests and benchmarks use, if missing
	.ci/deps

test: deps lint ## everything, with the race detector
	$(GO) test -race -p 1 -timeout 15m ./...
	GOLOCK_TEST_STORE=redis $(GO) test -race ./test/matrix
	GOLOCK_TEST_STORE=mariadb $(GO) test -race ./test/matrix
	$(GO) test -tags portable ./signals

test-short: ## without the race detector, without lint
	$(GO) test ./...

fuzz: ## each fuzz target for a minute
	.ci/fuzz 60s

lint: ## formatting, vet, the linters of .ci/golangci.yml
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt'ed: $$out"; exit 1; }
	$(GO) vet ./...
	$(TOOL) golangci-lint run -c .ci/golangci.yml ./...

bench: deps ## start-up, hand-off, bursts, memory beside flock, setlock and sem; writes docs/benchmarks.md
	$(GO) run ./bench -markdown docs/benchmarks.md

clean:
	rm -rf bin
