# crmirror. "make" or "make help" lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATIC := CGO_ENABLED=0 go build -trimpath
IMAGE ?= crmirror:$(VERSION)

# The race detector needs a C compiler; without one the tests run without it.
RACE := $(if $(shell command -v "$$(go env CC)"),-race)
# Tests start real servers: two packages at a time are what two cores carry.
TEST := go test $(RACE) -p 2
# A count of inputs, not a duration: when a duration is over, go test at times
# reports its own deadline as a failure of the test.
FUZZTIME ?= 100000x

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build crmirror and crlab into bin/
	$(STATIC) -ldflags "-s -w -X main.version=$(VERSION)" -o bin/crmirror ./cmd/crmirror
	$(STATIC) -ldflags "-s -w" -o bin/crlab ./cmd/crlab

# --- The control plane of tests, lab and demo ---------------------------------

CONTROLPLANE := testdata/controlplane

.PHONY: controlplane
controlplane: ## Build kube-apiserver and etcd into bin/, once (ten minutes); KUBEBUILDER_ASSETS skips it
ifdef KUBEBUILDER_ASSETS
	@echo "control plane: taken from KUBEBUILDER_ASSETS, $(KUBEBUILDER_ASSETS)"
else
	@$(CONTROLPLANE)/build bin
endif

# --- Tests --------------------------------------------------------------------

.PHONY: test
test: controlplane ## Run all tests but the long ones, and each fuzz test for a moment
	$(TEST) -timeout 30m ./...
	@$(MAKE) --no-print-directory fuzz FUZZTIME=20000x

.PHONY: test-long
test-long: controlplane ## Run the long tests: models, kills, soaks (the files with the build tag "long")
	@files="$$(grep -rl --include='*_test.go' '^//go:build long' cmd kube gitstore sync)"; \
	tests="$$(grep -oh '^func Test[A-Za-z0-9_]*' $$files | grep -v TestMain | sed 's/^func //' | paste -sd '|' -)"; \
	packages="$$(dirname $$files | sort -u | sed 's|^|./|' | paste -sd ' ' -)"; \
	set -x; $(TEST) -v -timeout 40m -tags long -run "^($$tests)$$" $$packages

# One can be as short as three minutes and tell growth.
MINUTES ?= 10

.PHONY: soak
soak: controlplane ## Watch the agent under steady change for MINUTES (default 10); chart in out/soak, fails on growth
	SOAK_MINUTES=$(MINUTES) SOAK_OUT=$(CURDIR)/out/soak \
		go test -count 1 -timeout $$(($(MINUTES) + 15))m -v -tags long -run '^TestSteady$$' ./cmd/internal/soak

.PHONY: docs-check
docs-check: controlplane ## Run the commands of deploy/README.md on a real API server; needs kubectl
	go test -count 1 -timeout 20m -run '^TestReadme$$' ./cmd/internal/deploy -args -kubectl

.PHONY: fuzz
fuzz: ## Run each fuzz test on FUZZTIME inputs (default 100000x)
	@grep -rho --include='*_test.go' --with-filename '^func Fuzz[A-Za-z0-9_]*' cmd kube gitstore sync | \
	while IFS=: read -r file function; do \
		echo "fuzz $${function#func } in $$(dirname "$$file"), $(FUZZTIME)"; \
		go test -run '^$$' -fuzz "^$${function#func }$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
	done

# --- Speed and memory ---------------------------------------------------------

.PHONY: bench
bench: build controlplane ## Measure beside git and a plain LIST; table, and out/bench.json
	go run ./cmd/internal/bench -out out/bench.json

.PHONY: bench-quick
bench-quick: build controlplane ## The same in small, in minutes
	go run ./cmd/internal/bench -quick -out out/bench.json

# --- Lint ---------------------------------------------------------------------

.PHONY: lint
lint: bin/golangci-lint ## Check format, go vet and golangci-lint
	@unformatted="$$(gofmt -l cmd kube gitstore sync)"; \
	if [ -n "$$unformatted" ]; then echo "not formatted, type \"gofmt -w\":" $$unformatted; exit 1; fi
	go vet ./...
	go vet -tags long ./...
	bin/golangci-lint run

bin/golangci-lint: testdata/tools/go.mod
	@echo "building golangci-lint, some minutes, once"
	cd testdata/tools && $(STATIC) -ldflags "-s -w" -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# --- Try and ship -------------------------------------------------------------

.PHONY: demo
demo: build controlplane ## Show crmirror at work on a real API server
	bin/crlab demo

.PHONY: image
image: ## Build the container image (IMAGE names it)
	docker build --build-arg VERSION=$(VERSION) --tag $(IMAGE) .

.PHONY: clean
clean: ## Remove what was built, but not the control plane
	rm -rf bin/crmirror bin/crlab bin/golangci-lint out
