# SPDX-License-Identifier: Apache-2.0
# `make` lists the targets. `make demo` and `make test` set up all they need but Go itself.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The two Go modules: the agent, and the real node with the stories run on it.
MODULES := . e2e
ARCHES := arm64 s390x ppc64le
SCRIPTS := .ci/run tools/setup tools/pin tools/package packaging/health-checker/image-update-agent.sh

# The newest version in CHANGELOG.md, with the commits since.
VERSION ?= $(shell tools/package version)
BINARY := bin/image-update-agent
# Its own package: nodes publish nothing.
CATALOG := bin/image-catalog
PAGES := bin/image-update-agent.8 bin/image-update-agent.yaml.5 bin/image-catalog.1
SBOMS := bin/image-update-agent.cdx.json bin/image-catalog.cdx.json
# The spec wants the symbols, and cgo on the one architecture where Go links no PIE by itself. What is built depends on
# no variable of the environment.
GO_LDFLAGS = -s -w
CGO_ENABLED = 0
# Go's linker keeps every exported method if one is looked up by a computed name, as text/template does; gRPC brings that
# for a trace page. Without it the agent is 5.1 MB of 24.8 smaller, and takes 4 MB less memory at rest. TestRPM fails for
# a new template or a computed MethodByName.
GO_TAGS := grpcnotrace
GO_BUILD := CGO_ENABLED=$(CGO_ENABLED) go build -trimpath -tags $(GO_TAGS) -ldflags '$(GO_LDFLAGS) -X main.version=$(VERSION)'

# Properties are tried with the same cases in each run, so that it fails for what was changed and not by chance;
# `make soak` tries others, and so does `go test` by hand.
export RAPID_SEED ?= 20261121

# How long `make fuzz` spends on each target, and how many cases `make soak` tries per property (rapid's own: 100).
FUZZTIME ?= 30s
CHECKS ?= 20000
# How often `make soak` kills the agent or containerd in a pull at any moment, on each containerd.
ROUNDS ?= 100
# How often it kills the agent in an apply, in each scenario, beside once at every point.
KILLS ?= 20
# And how often it has eight agents take turns.
TURNS ?= 80
# How many stories of a directory are told side by side, with two directories at a time: each waits more than it works.
# Their limit of 6 hours is for a machine that has much else to do.
STORIES ?= $(shell echo $$((($$(nproc) + 2) / 2)))
# `make bench BENCH=Poll` runs some of them.
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
# What a platform's directories need beyond the sandbox of the two units that write pod manifests: NAME.conf of a platform
# (internal/platform) is a drop-in of both.
PLATFORMS := $(wildcard systemd/platform/*.conf)

say = printf '\n==> %s\n' $(1)

.PHONY: help build man sbom demo test quick bench fleet pictures stylesheet translations holds soak fuzz mutants signatures lint format install installdocs tarball rpm clean packages node hosts root

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*##/ { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/image-update-agent and bin/image-catalog: static, stripped, for GOARCH
	$(GO_BUILD) -o $(BINARY) ./cmd/image-update-agent
	$(GO_BUILD) -o $(CATALOG) ./cmd/image-catalog
	@ls -sh --block-size=K $(BINARY) $(CATALOG)

$(BINARY) $(CATALOG):
	@$(MAKE) build

man: $(PAGES) ## the manual pages in bin/, of Markdown and the help of the programs

bin/image-catalog.1: docs/man/image-catalog.1.md $(CATALOG)
	@mkdir -p $(@D)
	go run ./tools/mkman $(CATALOG) $< >$@

bin/image-update-agent.%: docs/man/image-update-agent.%.md packaging/config.yaml $(BINARY)
	@mkdir -p $(@D)
	go run ./tools/mkman $(BINARY) $< >$@

sbom: $(SBOMS) ## what the programs are linked of, in bin/, as CycloneDX

bin/image-catalog.cdx.json: $(CATALOG)
	@mkdir -p $(@D)
	go run ./tools/mksbom $< >$@

bin/image-update-agent.cdx.json: $(BINARY)
	@mkdir -p $(@D)
	go run ./tools/mksbom $< >$@

demo: root node ## the whole job, shown on a real node that exists for it only; needs root
	@go -C e2e run ./cmd/demo

demo-catalog: root node ## stage, prod, a promotion, a withdrawal and a replayed catalog on such a node; needs root
	@go -C e2e run ./cmd/demo catalog

test: root node hosts ## the whole truth: all tests under the race detector, those on the real node too; needs root
	@export CGO_ENABLED=1; code=0; \
	$(call say,'tests of the packages'); \
	go test -race -timeout 2h ./... || code=$$?; \
	$(call say,'stories on the real node'); \
	go -C e2e test -race -timeout 6h -p 2 -parallel $(STORIES) ./... || code=$$?; \
	exit $$code

quick: ## the inner loop: all tests that need no node (a few mount a tmpfs as root)
	@go test ./...

bench: ## the benchmarks, beside the peers, and the size of the binary
	@$(MAKE) build
	@tools/setup peers
	@go test -run '^$$' -bench '$(BENCH)' -benchmem ./...
	@if grep -rqs --include='*_test.go' '^func Benchmark' e2e; then \
		$(MAKE) root node hosts && go -C e2e test -timeout 6h -run '^$$' -bench '$(BENCH)' -benchmem ./...; \
	fi

fleet: ## draw docs/dev/fleet*.svg and the tables of docs/dev/performance.md from the simulation
	@go -C e2e run ./cmd/fleet ../docs/dev

pictures: root node hosts ## draw the pictures of docs anew: from their *.dot, and of the page in Cockpit
	@tools/setup graphviz
	@for source in docs/*.dot docs/dev/*.dot; do \
		sum="$$(sha256sum "$$source" | cut -d ' ' -f 1)"; \
		neato -n2 -Tsvg "$$source" | \
			sed "1a<!-- drawn by make pictures from $${source##*/}, sha256:$$sum -->" >"$${source%.dot}.svg"; \
	done
	@IUA_PICTURES='$(CURDIR)/docs/cockpit' go -C e2e test -count=1 -run '^TestPage(Story|Faults|Look|Rights)$$/^337$$' ./page

stylesheet: ## cockpit/patternfly.css anew: what the page uses of PatternFly
	@tools/setup patternfly
	go run ./tools/mkcss "$$(tools/setup where patternfly)" cockpit >cockpit/patternfly.css.new
	mv cockpit/patternfly.css.new cockpit/patternfly.css

translations: ## cockpit/po.*.js anew, of cockpit/po/*.po
	@for file in cockpit/po/*.po; do language="$${file##*/}"; \
		go run ./tools/mkpo js "$$file" >"cockpit/po.$${language%.po}.js"; \
	done

holds: ## the table of holds in docs/operations.md anew, of agent/status
	go run ./tools/mkholds docs/operations.md

soak: root node ## the properties with CHECKS cases each, ROUNDS kills in a pull, KILLS in an apply, 1,600 adds, TURNS of a fleet, `make fuzz`
	@for dir in $$(grep -rl --exclude-dir=e2e --include='*_test.go' '"pgregory.net/rapid"' . | xargs -n1 dirname | sort -u); do \
		go test -count=1 -timeout 2h "$$dir" -rapid.checks=$(CHECKS) -rapid.seed=0; \
	done
	@IUA_ROUNDS=$(ROUNDS) go -C e2e test -count=1 -timeout 4h -v -run '^TestKilledInAPull$$' ./apply
	@IUA_ROUNDS=$(KILLS) go -C e2e test -count=1 -timeout 4h -v -run '^TestKilledInAnApply$$' ./apply
	@IUA_ROUNDS=200 go -C e2e test -count=1 -timeout 4h -v -run '^TestNoAddOfManyPublishersIsLost$$' ./catalog
	@IUA_ROUNDS=$(TURNS) go -C e2e test -count=1 -timeout 4h -v -run '^TestEightAgentsTakeTurns$$' ./fleet
	@$(MAKE) fuzz

# Minimising an interesting input takes a minute by default, in which nothing new is tried.
fuzz: ## each fuzz target for FUZZTIME
	@grep -rHoE --exclude-dir=e2e --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | while IFS=: read -r file target; do \
		$(call say,"$${file%/*} $${target#func }"); \
		go test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$${file%/*}"; \
	done

mutants: ## take each guard of docs/security.md out of a copy, and name those that no test misses; ROWS=T1,N2: only these
	@go -C e2e run ./cmd/mutants -rows '$(ROWS)'

signatures: ## sign the fixtures of internal/signature anew, with the real cosign 2 and 3, and verify them
	@tools/setup cosign
	@rm -rf internal/signature/testdata/*.json internal/signature/testdata/*.pem internal/signature/testdata/referrers
	@go -C e2e run ./cmd/fixtures "$$(tools/setup where cosign2)/cosign" "$$(tools/setup where cosign3)/cosign" \
		"$(CURDIR)/internal/signature/testdata"
	@go -C e2e run ./cmd/fixtures "$$(tools/setup where cosign2)/cosign" "$(CURDIR)/internal/signature/testdata/referrers"
	@go test -count=1 ./internal/signature

# golangci-lint brings gofumpt and go vet along, see .golangci.yml.
lint: packages ## golangci-lint, go.mod, the other architectures, shell scripts
	@tools/setup lint
	@for module in $(MODULES); do \
		$(call say,"golangci-lint: $$module"); \
		(cd "$$module" && "$$("$(CURDIR)/tools/setup" where lint)/golangci-lint" run ./...); \
		$(call say,"go mod tidy: $$module"); \
		go -C "$$module" mod tidy -diff; \
	done
	@for arch in $(ARCHES); do \
		$(call say,"go build: linux/$$arch"); \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -o /dev/null ./cmd/...; \
	done
	@$(call say,shellcheck)
	@shellcheck $(SCRIPTS)

format: ## rewrite all Go files as `make lint` wants them
	@tools/setup lint
	@for module in $(MODULES); do (cd "$$module" && "$$("$(CURDIR)/tools/setup" where lint)/golangci-lint" fmt); done

install: $(BINARY) $(CATALOG) $(PAGES) $(SBOMS) installdocs ## into DESTDIR, below PREFIX (/usr)
	install -Dm755 $(BINARY) '$(DESTDIR)$(BINDIR)/image-update-agent'
	for unit in $(UNITS); do sed 's|^\(Exec[A-Za-z]*=-*\)/usr/bin/|\1$(BINDIR)/|' "$$unit" | install -Dm644 /dev/stdin "$(DESTDIR)$(UNITDIR)/$${unit##*/}"; done
	for unit in image-update-agent image-update-agent-render; do for conf in $(PLATFORMS); do install -Dm644 "$$conf" "$(DESTDIR)$(UNITDIR)/$$unit.service.d/$${conf##*/}"; done; done
	install -Dm644 packaging/tmpfiles.conf '$(DESTDIR)$(TMPFILESDIR)/image-update-agent.conf'
	sed 's|^program=/usr/bin/|program=$(BINDIR)/|' packaging/health-checker/image-update-agent.sh | install -Dm755 /dev/stdin '$(DESTDIR)$(LIBEXECDIR)/health-checker/image-update-agent.sh'
	for state in packaging/salt/image-update/*.sls; do install -Dm644 "$$state" "$(DESTDIR)$(DATADIR)/salt-formulas/states/image-update/$${state##*/}"; done
	install -Dm644 packaging/salt/minion.d/image-update.conf '$(DESTDIR)$(DATADIR)/image-update-agent/salt/minion.d/image-update.conf'
	install -Dm644 packaging/config.yaml '$(DESTDIR)$(DATADIR)/image-update-agent/config.yaml'
	for program in image-update-agent image-catalog; do install -Dm644 "bin/$$program.cdx.json" "$(DESTDIR)$(DATADIR)/$$program/$$program.cdx.json"; done
	install -Dm644 packaging/dbus/org.opensuse.ImageUpdateAgent1.conf '$(DESTDIR)$(DATADIR)/dbus-1/system.d/org.opensuse.ImageUpdateAgent1.conf'
	install -Dm644 packaging/polkit/org.opensuse.ImageUpdateAgent1.policy '$(DESTDIR)$(DATADIR)/polkit-1/actions/org.opensuse.ImageUpdateAgent1.policy'
	$(BINARY) completion bash | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/bash-completion/completions/image-update-agent'
	$(BINARY) completion fish | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/image-update-agent.fish'
	$(BINARY) completion zsh | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/zsh/site-functions/_image-update-agent'
	install -Dm644 bin/image-update-agent.8 '$(DESTDIR)$(MANDIR)/man8/image-update-agent.8'
	install -Dm644 bin/image-update-agent.yaml.5 '$(DESTDIR)$(MANDIR)/man5/image-update-agent.yaml.5'
	for file in $(PAGE); do install -Dm644 "$$file" "$(DESTDIR)$(DATADIR)/cockpit/image-updates/$${file#cockpit/}"; done
	install -Dm644 packaging/cockpit/org.opensuse.image_update_agent.metainfo.xml '$(DESTDIR)$(DATADIR)/metainfo/org.opensuse.image_update_agent.metainfo.xml'
	install -Dm644 LICENSE '$(DESTDIR)$(DATADIR)/licenses/image-update-agent/LICENSE'
	install -Dm755 $(CATALOG) '$(DESTDIR)$(BINDIR)/image-catalog'
	$(CATALOG) completion bash | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/bash-completion/completions/image-catalog'
	$(CATALOG) completion fish | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/image-catalog.fish'
	$(CATALOG) completion zsh | install -Dm644 /dev/stdin '$(DESTDIR)$(DATADIR)/zsh/site-functions/_image-catalog'
	install -Dm644 bin/image-catalog.1 '$(DESTDIR)$(MANDIR)/man1/image-catalog.1'

# On a node there are neither sources nor developers' pages: of a link to them the words stay.
installdocs:
	install -d '$(DESTDIR)$(DOCDIR)'
	for page in docs/*.md; do \
		sed -zE 's#!\[[^]]*\]\(cockpit/[^)]*\)\n##g; s#\[([^]]*)\]\((\.\./|dev/|man/)[^)]*\)#\1#g' "$$page" | install -m644 /dev/stdin "$(DESTDIR)$(DOCDIR)/$${page##*/}"; \
	done
	install -m644 docs/*.svg packaging/prometheus/image-update-agent.rules.yml '$(DESTDIR)$(DOCDIR)'

tarball: ## dist/: sources and vendor.tar.gz of HEAD, the same bytes each time, with spec and .changes
	@tools/package tarball dist
	@ls -s --block-size=K dist

rpm: packages ## dist/: the RPMs of HEAD and its source package, built without a network; rpmlint
	@tools/package rpm dist
	@rpmlint --rpmlintrc packaging/image-update-agent-rpmlintrc dist/*.rpm dist/*.spec
	@ls -s --block-size=K dist

clean: ## what was built here; what tools/setup built stays in its cache
	rm -rf bin dist e2e/.build
	find . -name '*.test' -o -name '*.prof' | xargs -r rm -f

# What Debian's packages bring: the node's programs, the C compiler of the race detector, shellcheck, rpm.
packages:
	@tools/setup packages

node: packages
	@tools/setup containerd containerd17 distribution registry26 kubelet

# What the demo does not need: systems with systemd as process 1 and Cockpit, a browser, what tries the alarms, etcd, and
# what copies images to mirrors, and kubelet as the judge of what the agent reads.
hosts: packages
	@tools/setup kubelet-reads host host-new browser promtool etcd peers

# Asked before anything is built: containerd mounts images, kubelet makes cgroups.
root:
	@[ "$$(id -u)" = 0 ] || { echo 'this starts a real containerd, which needs root: sudo env "PATH=$$PATH" make ...' >&2; exit 1; }
