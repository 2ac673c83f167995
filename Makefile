# The verbs of this module. make test is what a change has to pass.

GO ?= go

# Each module is tested on the versions of its own go.mod. .ci/run has a workspace in which they all have these.
GOWORK ?= off
export GOWORK

# More flags for make test, such as GOTESTFLAGS='-v -run TestName'.
GOTESTFLAGS ?=

# How often make bench measures, and how long: BENCHFLAGS='-count=1 -benchtime 5x'
# shows in a few minutes whether all of it works.
BENCHFLAGS ?= -count=5

# --all: fail where one of the server versions can't be had.
SERVERSFLAGS ?=

.PHONY: test lint soak bench bench-network servers

# Packages stand in the lines of scripts/test-line.sh; the next ones are built meanwhile, at
# low priority, by a compiler that collects less garbage. A package's time-out counts from when
# it stands in its line. Where there is no flock, one at a time.
PACKAGES = -p 1 -timeout 15m
ifneq ($(shell command -v flock),)
PACKAGES = -p 14 -timeout 25m -toolexec 'env GOGC=400 nice -n 10' -exec '"$(CURDIR)/scripts/test-line.sh"'
endif

# Everything, with the race detector, on the embedded server and on every real
# one. With LEASEHOLD_REQUIRE_SERVERS a test that finds no server fails. Four tests of a
# package at a time: mostly they wait. internal/tests comes first, so that both long lines
# begin at once. bench has no tests.
test: servers
	LEASEHOLD_REQUIRE_SERVERS=1 $(GO) test -count=1 -race $(PACKAGES) -parallel 4 $(GOTESTFLAGS) ./internal/tests/... $$($(GO) list ./... | grep -v '/bench$$')

lint:
	CGO_ENABLED=1 $(GO) vet -race ./... # -race, here and below: as the tests are built
	@echo "gofumpt -l ."
	@files=$$($(GO) run mvdan.cc/gofumpt -l .) && test -z "$$files" || \
		{ echo "to be formatted with gofumpt:"; echo "$$files"; exit 1; }
	$(GO) mod tidy -diff
	for m in cmd/leasehold robustness bench/report leaseholdotel; do $(GO) -C $$m vet ./... && $(GO) -C $$m mod tidy -diff || exit; done
	for m in httpcap/chitest grpccap rivercap certmagiclock gocronlock asynqrecipe; do CGO_ENABLED=1 $(GO) -C integrations/$$m vet -race ./... && $(GO) -C integrations/$$m mod tidy -diff || exit; done
	for m in bench/peers examples/fencing examples/jobs examples/cron docs/migration; do $(GO) -C $$m vet ./... || exit; done # not tidied: a test dependency of redsync's and one of modernc.org/sqlite's can't be had everywhere
	for f in scripts/*.sh .ci/run; do bash -n $$f || exit; done
	flags=$$($(GO) env GOFLAGS) && $(GO) run -exec "env CGO_ENABLED=1 \"GOFLAGS=$$flags -race\"" honnef.co/go/tools/cmd/staticcheck ./...

# The randomised tests with fresh seeds, for an hour. The other targets and .ci/run take the
# same seeds each time, so a find here is news, and no failed check of a change.
soak: servers
	GO='$(GO)' scripts/soak.sh

# All benchmarks, and docs/benchmarks.md made of them: half an hour.
bench: servers
	GO='$(GO)' scripts/bench.sh $(BENCHFLAGS)

# The first section of docs/benchmarks.md alone, over a network with a delay: less than ten
# minutes.
bench-network: servers
	GO='$(GO)' scripts/bench.sh network $(BENCHFLAGS)

# Unpacks the servers that the tests run on into .servers; nothing is installed.
servers:
	scripts/servers.sh $(SERVERSFLAGS)
