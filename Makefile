# SPDX-License-Identifier: Apache-2.0
# `make` lists the targets. `make demo` and `make test` install all that they need except Go.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The two Go modules: the programs, and the end-to-end tests with the test node.
MODULES := . e2e
# Architectures whose types differ from amd64's; `make dist` also builds for ppc64le.
ARCHES := arm64 s390x
SCRIPTS := .ci/run tools/in-memory tools/setup tools/pin tools/package packaging/health-checker/image-update-agent.sh

# The newest version in CHANGELOG.md, plus the number of commits since.
VERSION ?= $(shell tools/package version)
BINARY := bin/image-update-agent
# The program that answers containerd, without the other code of the agent.
LOCAL_REGISTRY := bin/image-update-agent-local-registry
# In a separate package, since nodes do not publish.
CATALOG := bin/image-catalog
PAGES := bin/image-update-agent.8 bin/image-update-agent.yaml.5 bin/image-update-agent-dbus.5 bin/image-update-agent-json.5 bin/image-catalog.1
SBOMS := bin/image-update-agent.cdx.json bin/image-update-agent-local-registry.cdx.json bin/image-catalog.cdx.json
# The spec file sets these, to keep the symbols and to use cgo on the one architecture where Go cannot link a PIE by
# itself. They are make variables, so that no environment variable influences a build.
GO_LDFLAGS = -s -w
CGO_ENABLED = 0
# Go's linker keeps all exported methods if the program looks up a method by a computed name, as text/template does,
# which gRPC uses for a trace page. Without the page, the agent's size is 5.1 MB less than 24.8 MB, and it uses 4 MB less
# memory at rest. TestRPM fails if the program uses templates or a computed MethodByName.
GO_TAGS := grpcnotrace
GO_BUILD := CGO_ENABLED=$(CGO_ENABLED) go build -trimpath -tags $(GO_TAGS) -ldflags '$(GO_LDFLAGS) -X main.version=$(VERSION)'

# A fixed seed gives property tests the same cases in each run, so that a failure comes from a change and not from
# chance. `make soak` uses other seeds, and so does `go test` without make.
export RAPID_SEED ?= 20261121

# Time of `make fuzz` for each target, and cases of `make soak` for each property (rapid's default is 100).
FUZZTIME ?= 30s
CHECKS ?= 20000
# How often `make soak` kills the agent or containerd at a random moment of a pull, on each containerd.
ROUNDS ?= 100
# How often it kills the agent at a random moment of an apply, in each scenario; it also kills it once at every point.
KILLS ?= 20
# How often eight agents take turns.
TURNS ?= 80
# The number of new inputs on which the agent is compared with each neighbour.
INPUTS ?= 100000
# Stories wait longer than they compute: three for each processor run in a directory, and one directory more than there
# are processors, so that one whose last story waits keeps none of them idle. With two directories on two processors all
# stories took 614 s, with three 471 s, and every processor computed until the end. More than 48 nodes at once would need
# more memory than most machines have. All is compiled first: one that boots a system beside one that compiles doubles
# both. Their timeout of 6 hours is for a busy machine. As many packages are tested at once: a dozen mostly wait, for a
# timeout of five seconds or a process to end.
STORIES ?= $(shell n=$$((3 * $$(nproc))); echo $$((n < 12 ? n : 12)))
DIRECTORIES ?= $(shell n=$$((1 + $$(nproc))); echo $$((n < 4 ? n : 4)))
# The directories whose tests take longest, which begin first: in the order of the alphabet, the longest would end alone.
# ./host builds the package, and ./apply mostly waits.
# Each is run (-count=1): Go's cache does not see that files outside of the module e2e have changed.
LONGEST := ./host ./apply ./cli ./page ./catalog ./images
# The packages whose goroutines share memory, and that are small: the race detector instruments all that a package
# imports, and makes a history up to twenty times as slow. So there are no histories and no documents of megabytes, and
# a fifth of the cases of a property. `make soak` runs it on all of them.
RACES := ./agent ./agent/stage ./agent/watch ./internal/face/api ./internal/face/bus ./internal/face/hook ./internal/registry ./internal/registry/hosts ./internal/registry/registryhost/answer ./internal/registry/transport ./internal/node/state
HISTORIES := ^TestHistories
WITHOUT_RACE := $(HISTORIES)|^TestPowerCut|^TestGrowthIsLinear|^TestDocumentsAreBounded|^TestLimitsOfSizeAndCount|^TestStatusOfALargeNode
HAVE_HISTORIES := ./agent ./internal/catalog/publish
# `make lint` vets all code. Without symbols and debug information, linking a test takes 40 % less time, which is 11 s of
# a processor for all packages; traces of panics have their lines all the same.
TEST := test -vet=off -ldflags=-s
# `make bench BENCH=Poll` runs only the benchmarks with Poll in their names.
BENCH ?= .

PREFIX ?= /usr
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
DOCDIR ?= $(DATADIR)/doc/image-update-agent
UNITDIR ?= $(PREFIX)/lib/systemd/system
LIBEXECDIR ?= $(PREFIX)/libexec
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
PAGE := $(wildcard cockpit/*.js cockpit/*.css cockpit/*.html cockpit/manifest.json cockpit/vendor/*.js cockpit/vendor/*.LICENSE)
UNITS := $(wildcard $(addprefix systemd/image-update-agent*.,service socket path timer))
# NAME.conf opens the sandbox of the two units that write pod manifests for the directories of platform NAME
# (internal/node/platform). It is a drop-in of both units.
PLATFORMS := $(wildcard systemd/platform/*.conf)

say = printf '\n==> %s\n' $(1)

.PHONY: help build man sbom demo test neighbours quick bench pictures stylesheet translations tables soak fuzz mutants signatures lint format install installdocs tarball dist rpm clean packages node hosts soakparts root

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*##/ { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/image-update-agent, bin/image-update-agent-local-registry and bin/image-catalog: static, stripped, for GOARCH
	$(GO_BUILD) -o $(BINARY) ./cmd/image-update-agent
	$(GO_BUILD) -o $(LOCAL_REGISTRY) ./cmd/image-update-agent-local-registry
	$(GO_BUILD) -o $(CATALOG) ./cmd/image-catalog
	@ls -sh --block-size=K $(BINARY) $(LOCAL_REGISTRY) $(CATALOG)

$(BINARY) $(LOCAL_REGISTRY) $(CATALOG):
	@$(MAKE) build

man: $(PAGES) ## write the man pages to bin/, from Markdown and the programs' help

bin/image-catalog.1: docs/man/image-catalog.1.md $(CATALOG)
	@mkdir -p $(@D)
	go run ./tools/mkman $(CATALOG) $< >$@

bin/image-update-agent%: docs/man/image-update-agent%.md packaging/config.yaml $(BINARY)
	@mkdir -p $(@D)
	go run ./tools/mkman $(BINARY) $< >$@

sbom: $(SBOMS) ## write bills of materials of the programs to bin/, as CycloneDX

bin/image-catalog.cdx.json: $(CATALOG)
	@mkdir -p $(@D)
	go run ./tools/mksbom $< >$@

bin/image-update-agent.cdx.json: $(BINARY)
	@mkdir -p $(@D)
	go run ./tools/mksbom $< >$@

bin/image-update-agent-local-registry.cdx.json: $(LOCAL_REGISTRY)
	@mkdir -p $(@D)
	go run ./tools/mksbom $< '$(VERSION)' >$@

# The same flags as for kubelet in tools/setup, so that the standard library is compiled only once.
FAST_GO = CGO_ENABLED=0 GOFLAGS="-trimpath '-gcflags=all=-l -dwarf=false'"
# Those of the programs, of containerd and of the linter: tests, linter and release use the same compiled packages.
SAME_GO = CGO_ENABLED=0 GOFLAGS=-trimpath

demo: root ## show the main job on a temporary real node; needs root
	@$(FAST_GO) tools/setup demo
	@$(FAST_GO) go -C e2e run ./cmd/demo

demo-catalog: root ## show catalogs on such a node: stage, prod, a promotion, a withdrawal, a replay; needs root
	@$(FAST_GO) tools/setup demo
	@$(FAST_GO) go -C e2e run ./cmd/demo catalog

test: root hosts ## run all tests, including those on the real node; installs and builds what they need; needs root
	@code=0; \
	$(call say,'tests of the packages'); \
	$(SAME_GO) tools/in-memory go $(TEST) -timeout 2h -p $(DIRECTORIES) ./... || code=$$?; \
	$(call say,'the same under the race detector: packages whose goroutines share memory'); \
	RAPID_CHECKS=20 CGO_ENABLED=1 tools/in-memory go $(TEST) -race -timeout 2h -skip '$(WITHOUT_RACE)' $(RACES) || code=$$?; \
	$(call say,'stories on the real node'); \
	$(SAME_GO) go -C e2e $(TEST) -run '^$$' ./... >/dev/null || code=$$?; \
	$(SAME_GO) tools/in-memory go -C e2e $(TEST) -count=1 -timeout 6h -p $(DIRECTORIES) -parallel $(STORIES) $(LONGEST) ./... || code=$$?; \
	exit $$code

neighbours: root ## ask the programs of docs/dev/neighbours.md anew, and write the records of what they answer; fails where an answer changed
	@tools/setup packages $(NEIGHBOURS)
	@IUA_NEIGHBOURS=ask go $(TEST) -count=1 ./internal/node/contents
	@IUA_NEIGHBOURS=ask go -C e2e $(TEST) -count=1 -timeout 2h -tags neighbours ./neighbours

quick: ## run all tests that need no node (as root, a few mount a tmpfs)
	@$(SAME_GO) tools/in-memory go $(TEST) -timeout 2h -p $(DIRECTORIES) ./...

bench: ## run the benchmarks, also of comparable programs, and print the size of the binary
	@$(MAKE) build
	@tools/setup peers
	@go test -run '^$$' -bench '$(BENCH)' -benchmem ./...
	@if grep -rqs --include='*_test.go' '^func Benchmark' e2e; then \
		$(MAKE) root node hosts && go -C e2e test -timeout 6h -run '^$$' -bench '$(BENCH)' -benchmem ./...; \
	fi

pictures: root node hosts ## redraw the pictures in docs: from *.dot files, and screenshots of the Cockpit page
	@tools/setup graphviz
	@for source in docs/dev/*.dot; do \
		sum="$$(sha256sum "$$source" | cut -d ' ' -f 1)"; \
		neato -n2 -Tsvg "$$source" | \
			sed "1a<!-- drawn by make pictures from $${source##*/}, sha256:$$sum -->" >"$${source%.dot}.svg"; \
	done
	@rm -f docs/cockpit/*.png # what is not drawn again is missed by the tests of the pages
	@IUA_PICTURES='$(CURDIR)/docs/cockpit' go -C e2e test -count=1 -run '^TestPage(Story|Faults|Look|Rights|AppliesManyPods)$$/^287$$' ./page

stylesheet: ## rebuild cockpit/patternfly.css from the parts of PatternFly that the page uses
	@tools/setup patternfly
	go run ./tools/mkcss "$$(tools/setup where patternfly)" cockpit >cockpit/patternfly.css.new
	mv cockpit/patternfly.css.new cockpit/patternfly.css

translations: ## rebuild cockpit/po.*.js from cockpit/po/*.po
	@for file in cockpit/po/*.po; do language="$${file##*/}"; \
		go run ./tools/mkpo js "$$file" >"cockpit/po.$${language%.po}.js"; \
	done

tables: ## update the tables of states, holds and metrics in docs from the code
	go run ./tools/mktables docs/status.md docs/man/image-update-agent.8.md

soak: root soakparts ## run all tests on each system and containerd and under the race detector, CHECKS cases of each property, ROUNDS kills in a pull, KILLS in an apply, 1,600 adds, TURNS of a fleet, INPUTS for each neighbour, and `make fuzz`
	@CGO_ENABLED=1 tools/in-memory go $(TEST) -race -timeout 6h ./...
	@CGO_ENABLED=1 tools/in-memory go -C e2e $(TEST) -race -count=1 -timeout 24h -tags soak -p $(DIRECTORIES) -parallel $(STORIES) $(LONGEST) ./...
	@for dir in $$(grep -rl --exclude-dir=e2e --include='*_test.go' '"pgregory.net/rapid"' . | xargs -n1 dirname | sort -u); do \
		go test -count=1 -timeout 2h "$$dir" -rapid.checks=$(CHECKS) -rapid.seed=0; \
	done
	@IUA_ROUNDS=$(ROUNDS) go -C e2e test -tags soak -count=1 -timeout 4h -v -run '^TestKilledInAPull$$' ./apply
	@IUA_ROUNDS=$(KILLS) go -C e2e test -tags soak -count=1 -timeout 4h -v -run '^TestKilledInAnApply$$' ./apply
	@IUA_ROUNDS=200 go -C e2e test -count=1 -timeout 4h -v -run '^TestNoAddOfManyPublishersIsLost$$' ./catalog
	@IUA_ROUNDS=$(CHECKS) IUA_SEED=$$(date +%s) go test -count=1 -timeout 4h -v -run 'Pair|Three' ./internal/catalog/publish
	@IUA_ROUNDS=1000 IUA_SEED=$$(date +%s) go test -count=1 -v -run '^TestIDsOfManyMachinesMatchSystemd$$' ./internal/fleet/fleetlock
	@IUA_ROUNDS=$(TURNS) go -C e2e test -tags soak -count=1 -timeout 4h -v -run '^TestEightAgentsTakeTurns$$' ./fleet
	@tools/setup $(NEIGHBOURS)
	@IUA_ROUNDS=$(INPUTS) IUA_SEED=$$(date +%s) go -C e2e test -count=1 -timeout 12h -v -tags neighbours ./neighbours
	@for round in 1 2 3 4 5 6 7 8 9; do IUA_SEED=$$(date +%s) go test -count=1 -v -run MatchSystemd ./internal/base/window; done
	@$(MAKE) fuzz

# By default, the fuzzer spends a minute on minimizing each interesting input, and tries no new ones meanwhile.
fuzz: ## run each fuzz target for FUZZTIME
	@grep -rHoE --exclude-dir=e2e --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | while IFS=: read -r file target; do \
		$(call say,"$${file%/*} $${target#func }"); \
		go test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$${file%/*}"; \
	done

mutants: ## remove each guard of docs/dev/security-evidence.md from a copy, and list those whose tests still pass; ROWS=T1,N2: only these
	@go -C e2e run ./cmd/mutants -rows '$(ROWS)'

signatures: ## sign the fixtures of internal/registry/signature again with the real cosign 2 and 3, and verify them
	@tools/setup cosign
	@rm -rf internal/registry/signature/testdata/*.json internal/registry/signature/testdata/*.pem internal/registry/signature/testdata/referrers
	@go -C e2e run ./cmd/fixtures "$$(tools/setup where cosign2)/cosign" "$$(tools/setup where cosign3)/cosign" \
		"$(CURDIR)/internal/registry/signature/testdata"
	@go -C e2e run ./cmd/fixtures "$$(tools/setup where cosign2)/cosign" "$(CURDIR)/internal/registry/signature/testdata/referrers"
	@go test -count=1 ./internal/registry/signature

# golangci-lint includes gofumpt and go vet, see .golangci.yml.
lint: ## run golangci-lint and shellcheck, check go.mod, build for the other architectures
	@tools/setup packages lint
	@for module in $(MODULES); do \
		$(call say,"golangci-lint: $$module"); \
		(cd "$$module" && $(SAME_GO) "$$("$(CURDIR)/tools/setup" where lint)/golangci-lint" run ./...); \
		$(call say,"go mod tidy: $$module"); \
		go -C "$$module" mod tidy -diff; \
	done
	@for arch in $(ARCHES); do \
		$(call say,"go build: linux/$$arch"); \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -gcflags 'all=-l -dwarf=false' -o /dev/null ./cmd/...; \
	done
	@$(call say,shellcheck)
	@shellcheck $(SCRIPTS)

format: ## format all Go files as `make lint` requires
	@tools/setup lint
	@for module in $(MODULES); do (cd "$$module" && "$$("$(CURDIR)/tools/setup" where lint)/golangci-lint" fmt); done

install: $(BINARY) $(LOCAL_REGISTRY) $(CATALOG) $(PAGES) $(SBOMS) installdocs ## install to DESTDIR, below PREFIX (/usr)
	install -Dm755 $(BINARY) '$(DESTDIR)$(BINDIR)/image-update-agent'
	install -Dm755 $(LOCAL_REGISTRY) '$(DESTDIR)$(LIBEXECDIR)/image-update-agent-local-registry'
	for unit in $(UNITS); do sed 's|^\(Exec[A-Za-z]*=-*\)/usr/bin/|\1$(BINDIR)/|; s|^\(ExecStart=\)/usr/libexec/|\1$(LIBEXECDIR)/|' "$$unit" | install -Dm644 /dev/stdin "$(DESTDIR)$(UNITDIR)/$${unit##*/}"; done
	for unit in image-update-agent image-update-agent-render; do for conf in $(PLATFORMS); do install -Dm644 "$$conf" "$(DESTDIR)$(UNITDIR)/$$unit.service.d/$${conf##*/}"; done; done
	install -Dm644 packaging/tmpfiles.conf '$(DESTDIR)$(TMPFILESDIR)/image-update-agent.conf'
	sed 's|^program=/usr/bin/|program=$(BINDIR)/|' packaging/health-checker/image-update-agent.sh | install -Dm755 /dev/stdin '$(DESTDIR)$(LIBEXECDIR)/health-checker/image-update-agent.sh'
	for state in packaging/salt/image-update/*.sls; do install -Dm644 "$$state" "$(DESTDIR)$(DATADIR)/salt-formulas/states/image-update/$${state##*/}"; done
	install -Dm644 packaging/salt/minion.d/image-update.conf '$(DESTDIR)$(DATADIR)/image-update-agent/salt/minion.d/image-update.conf'
	install -Dm644 packaging/config.yaml '$(DESTDIR)$(DATADIR)/image-update-agent/config.yaml'
	for program in image-update-agent image-catalog; do install -Dm644 "bin/$$program.cdx.json" "$(DESTDIR)$(DATADIR)/$$program/$$program.cdx.json"; done
	install -Dm644 bin/image-update-agent-local-registry.cdx.json '$(DESTDIR)$(DATADIR)/image-update-agent/image-update-agent-local-registry.cdx.json'
	install -Dm644 packaging/dbus/org.opensuse.ImageUpdateAgent1.conf '$(DESTDIR)$(DATADIR)/dbus-1/system.d/org.opensuse.ImageUpdateAgent1.conf'
	install -Dm644 packaging/polkit/org.opensuse.ImageUpdateAgent1.policy '$(DESTDIR)$(DATADIR)/polkit-1/actions/org.opensuse.ImageUpdateAgent1.policy'
	$(BINARY) completion bash | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/bash-completion/completions/image-update-agent'
	$(BINARY) completion fish | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/image-update-agent.fish'
	$(BINARY) completion zsh | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/zsh/site-functions/_image-update-agent'
	install -Dm644 bin/image-update-agent.8 '$(DESTDIR)$(MANDIR)/man8/image-update-agent.8'
	for page in .yaml -dbus -json; do install -Dm644 "bin/image-update-agent$$page.5" "$(DESTDIR)$(MANDIR)/man5/image-update-agent$$page.5"; done
	for file in $(PAGE); do install -Dm644 "$$file" "$(DESTDIR)$(DATADIR)/cockpit/image-updates/$${file#cockpit/}"; done
	install -Dm644 packaging/cockpit/org.opensuse.image_update_agent.metainfo.xml '$(DESTDIR)$(DATADIR)/metainfo/org.opensuse.image_update_agent.metainfo.xml'
	install -Dm644 LICENSE '$(DESTDIR)$(DATADIR)/licenses/image-update-agent/LICENSE'
	install -Dm755 $(CATALOG) '$(DESTDIR)$(BINDIR)/image-catalog'
	$(CATALOG) completion bash | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/bash-completion/completions/image-catalog'
	$(CATALOG) completion fish | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/image-catalog.fish'
	$(CATALOG) completion zsh | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/zsh/site-functions/_image-catalog'
	install -Dm644 bin/image-catalog.1 '$(DESTDIR)$(MANDIR)/man1/image-catalog.1'

# A node has neither the sources nor the developers' pages: links to them become plain text.
installdocs:
	install -d '$(DESTDIR)$(DOCDIR)'
	for page in docs/*.md; do \
		sed -zE 's#!\[[^]]*\]\(cockpit/[^)]*\)\n##g; s#\[([^]]*)\]\((\.\./|dev/|man/)[^)]*\)#\1#g' "$$page" | install -m644 /dev/stdin "$(DESTDIR)$(DOCDIR)/$${page##*/}"; \
	done
	install -m644 packaging/prometheus/image-update-agent.rules.yml packaging/grafana/image-update-agent.json packaging/lock-server/airlock.toml packaging/lock-server/nginx.conf '$(DESTDIR)$(DOCDIR)'

tarball: ## write to dist/: sources and vendor.tar.gz of HEAD, byte-identical each time, with spec and .changes
	@tools/package tarball dist
	@ls -s --block-size=K dist

dist: packages ## write to dist/: the files of `make tarball`, for each architecture a tarball, a system extension image and bills of materials, and the container image of image-catalog
	@tools/package dist dist
	@ls -s --block-size=K dist

rpm: packages ## write to dist/: the RPMs of HEAD and the source package, built without network, and run rpmlint
	@tools/package rpm dist
	@rpmlint --rpmlintrc packaging/image-update-agent-rpmlintrc dist/*.rpm dist/*.spec
	@ls -s --block-size=K dist

clean: ## remove build results; the cache of tools/setup stays
	rm -rf bin dist e2e/.build
	find . -name '*.test' -o -name '*.prof' | xargs -r rm -f

# Debian's packages: the node's programs, the C compiler for the race detector, shellcheck, rpm.
packages:
	@tools/setup packages

NODE := containerd containerd17 distribution registry26 kubelet
node:
	@tools/setup packages $(NODE)

# Parts that only the tests need: a system with systemd as process 1 and Cockpit, a browser, Prometheus, etcd, and a program
# that copies images to mirrors.
hosts:
	@tools/setup packages $(NODE) crane host browser prometheus etcd

# `make soak` has all systems, an API server, and the other programs that copy images.
soakparts: hosts
	@tools/setup apiserver host-new peers

# Programs with the code of kubelet, containerd, cosign and etcd. Tests compare the agent with the record of what they
# answer: only `make neighbours`, which writes it, and `make soak`, which asks about new inputs, build them.
NEIGHBOURS := kubelet-reads containerd-reads containerd17-reads containerd16-reads cosign2-verifies cosign3-verifies etcd etcd35 etcd36

# Checked before anything is built: containerd mounts images, and kubelet makes cgroups.
root:
	@[ "$$(id -u)" = 0 ] || { echo 'this starts a real containerd, which needs root: sudo env "PATH=$$PATH" make ...' >&2; exit 1; }
