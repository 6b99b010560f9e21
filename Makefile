# Rolewright. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# All build output goes to bin/, and the pinned development tools to bin/tools/.
BIN   := $(CURDIR)/bin
TOOLS := $(BIN)/tools
# On systems other than Debian, Ansible is installed into a virtual environment in bin/ansible.
export PATH := $(BIN)/ansible/bin:$(PATH)

# A test fails if a program that it needs is missing. With plain `go test`, such a test is skipped.
export ROLEWRIGHT_TEST_PARTS := required
# A process with the race detector sleeps for a second before it exits. Every run has such a process, its supervisor.
# Races are reported without that sleep too.
export GORACE ?= atexit_sleep_ms=0

# What `rolewright version` prints: the last tag, or without one the version of chart and bundle.
VERSION     ?= $(shell git describe --tags --abbrev=0 2>/dev/null || sed -n 's/^version: /v/p' config/chart/Chart.yaml)
GIT_VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT      ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
VERSION_PKG := github.com/rolewright/rolewright/internal/version
LDFLAGS     := -s -w -X $(VERSION_PKG).Version=$(VERSION) -X $(VERSION_PKG).GitVersion=$(GIT_VERSION) -X $(VERSION_PKG).Commit=$(COMMIT)

# All programs are built with the same flags, so that they share Go's build cache.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

# The second line of Ansible that the tests use, beside the system's.
SECOND_LINE := $(BIN)/ansible-2.19
# The newest line of Ansible, with its own Python.
THIRD_LINE  := $(BIN)/ansible-2.22
# Runs fault plans on their own control plane.
FAULTS = $(TOOLS)/controlplane exec --audit-log audit.log -- $(BIN)/faults -rolewright $(BIN)/rolewright-failpoint -fakerunner $(BIN)/fakerunner
# The directory of image archives and build logs, and the script that builds images.
IMAGES := $(BIN)/image
IMAGE  := tools/image/build.sh $(IMAGES)
IMAGE_ARGS = --build-arg VERSION=$(VERSION) --build-arg GIT_VERSION=$(GIT_VERSION) --build-arg COMMIT=$(COMMIT)
# Where cluster-up keeps its state.
CLUSTER_DIR := $(BIN)/cluster
# How many inputs the short run of each fuzz target tries. With a duration, such as 5s, Go sometimes reports the end of
# that time as a failure.
FUZZTIME ?= 3000x
# Further arguments: make unit TESTFLAGS='-run TestName -v', make run RUNFLAGS='--zap-log-level debug'.
TESTFLAGS  ?=
RUNFLAGS   ?=
BENCHFLAGS ?=
FAULTSFLAGS ?=

.PHONY: help
help: ## list the targets
	@echo 'Usage: make TARGET'
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-20s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ The operator

.PHONY: build
build: ## build bin/rolewright, a static binary, and bin/rolewright-helm, which runs charts
	$(GO_BUILD) -o $(BIN)/rolewright ./cmd/rolewright
	cd cmd/rolewright-helm && $(GO_BUILD) -o $(BIN)/rolewright-helm .

.PHONY: man
man: ## write the manual pages to bin/man
	@go test ./cmd/rolewright -count=1 -run TestManPages -args -man $(BIN)/man

.PHONY: demo
demo: ## watch the example operator from the first object to its finalizer, on a control plane of its own
	@$(MAKE) --no-print-directory -j 2 setup cluster-tools-kwok $(TOOLS)/kubectl build
	@$(TOOLS)/controlplane exec --kwok -- test/demo.sh

.PHONY: run
run: setup build ## run the example operator in the foreground, against the current kubeconfig
	@$(BIN)/rolewright run --watches-file=./watches.yaml $(RUNFLAGS)

.PHONY: image
image: setup-image ## build the images of the program, for operators and of the example operator: archives in bin/image, without a registry
	@$(IMAGE) rolewright/binary:$(GIT_VERSION),latest $(IMAGE_ARGS) --target binary .
	@$(IMAGE) rolewright/operator:$(GIT_VERSION),latest $(IMAGE_ARGS) --target operator .
	@$(IMAGE) rolewright/charts:$(GIT_VERSION),latest $(IMAGE_ARGS) --target charts .
	@$(IMAGE) rolewright/example:$(GIT_VERSION),latest $(IMAGE_ARGS) .

.PHONY: image-size
image-size: setup-image ## compare the size of the image with that of the same packages installed in the usual way; fails above 60 %
	@$(IMAGE) rolewright/operator:size $(IMAGE_ARGS) --target operator .
	@$(IMAGE) rolewright/naive:size --file tools/image/naive.Dockerfile tools/image
	@$(IMAGE) rolewright/naive-all:size --build-arg ALL=ansible --file tools/image/naive.Dockerfile tools/image
	@ours=$$(stat -c %s $(IMAGES)/rolewright-operator.tar); usual=$$(stat -c %s $(IMAGES)/rolewright-naive.tar); \
		echo "image: $$((100 * ours / usual)) % of the usual installation, at most 60 %"; \
		[ $$((100 * ours)) -le $$((60 * usual)) ]

.PHONY: image-reproducible
image-reproducible: setup-image ## build the image for operators twice from nothing, and compare the layers
	@for n in 1 2; do \
		$(IMAGE) rolewright/again$$n:x $(IMAGE_ARGS) --no-cache --target operator .; \
		tar -xOf $(IMAGES)/rolewright-again$$n.tar manifest.json | grep -o '"Layers":\[[^]]*\]' >$(IMAGES)/again$$n.layers; \
	done
	@cmp $(IMAGES)/again1.layers $(IMAGES)/again2.layers && echo 'image: the same layers twice'

##@ Tests

.PHONY: test
test: ## set-up, lint, unit and integration tests on real parts
	@rm -f $(BIN)/repeated
	@tools/step.sh 'set-up' $(MAKE) setup setup-race setup-trace second-line
	@tools/step.sh 'development tools' $(MAKE) cluster-tools-kwok lint-tools client-tools
	@tools/step.sh 'build' $(MAKE) build
	@tools/step.sh 'lint' $(MAKE) lint
	@tools/step.sh 'unit and integration tests' $(MAKE) integration
	@tools/step.sh 'the newer line of Ansible' $(MAKE) test-second-line-short
	@tools/step.sh 'the newest line of Ansible' $(MAKE) test-third-line-short
	@tools/step.sh 'chart, bundle and rules' $(MAKE) test-manifests
	@if $(call IN_TIME,60); then tools/step.sh 'fault plans' $(MAKE) fault-plans fault-plans-forked-short; else $(call LATE,fault-plans,60); fi
	@if $(call IN_TIME,40); then tools/step.sh 'forked runs compared with plain ones' $(MAKE) test-compare; else $(call LATE,test-compare,40); fi
	@if $(call IN_TIME,60); then tools/step.sh 'end-to-end tests' $(MAKE) test-e2e; else $(call LATE,test-e2e,60); fi
	@if [ -s $(BIN)/repeated ]; then cat $(BIN)/repeated; fi

# If make test has taken too long, it leaves steps out. It names each one where it is left out, and again at the end.
BEGAN := $(shell date +%s)
IN_TIME = [ $$(($$(date +%s) - $(BEGAN))) -lt $$(($1 * 60)) ]
LATE = echo 'NOT RUN: `make $1`. make test has taken $2 minutes already.' | tee -a $(BIN)/repeated

.PHONY: test-all
test-all: IN_TIME = true
test-all: test ## make test, then what takes longer: the remaining tests with the race detector, all tests on the newer and newest line of Ansible, forked runs, more fault plans, the image, a real cluster, the page in a browser, the development control plane, fuzz targets
	@tools/step.sh 'the race detector where make test has none' $(MAKE) test-race
	@tools/step.sh 'all of the newer line' $(MAKE) test-second-line
	@tools/step.sh 'forked runs on the newer line' $(MAKE) test-forked
	@tools/step.sh 'all of the newest line' $(MAKE) test-third-line
	@tools/step.sh 'fault plans with the race detector' $(MAKE) fault-plans RACE=1
	@tools/step.sh 'fault plans with forked runs' $(MAKE) fault-plans-forked
	@tools/step.sh 'fault plans with a command' $(MAKE) fault-plans-command
	@tools/step.sh 'Python and Ansible of the image' $(MAKE) test-image-where-possible
	@tools/step.sh 'the page in a browser' $(MAKE) test-page
	@tools/step.sh 'a real Pod in a real cluster' $(MAKE) e2e-where-possible
	@tools/step.sh 'tests of the development control plane' $(MAKE) test-tools
	@tools/step.sh 'the molecule scenario kind' env ROLEWRIGHT_TEST_EVERY_CASE=1 $(MAKE) test-e2e TESTFLAGS='-run TestMolecule $(TESTFLAGS)'
	@tools/step.sh 'fuzz targets' $(MAKE) fuzz-short
	@if [ -s $(BIN)/repeated ]; then cat $(BIN)/repeated; fi

# The tests of these packages mostly start processes: Ansible, the operator and its commands. The latter two are the test
# binary itself, which needs several times the CPU and memory with the race detector. make test-all runs them with it.
PROCESS_PACKAGES = ./runner ./runner/supervise ./runner/warm ./test/executors ./test/hostile ./test/e2e

.PHONY: integration
integration: cluster-tools-kwok client-tools $(TOOLS)/gotestsum ## go test of everything except test-compare and test-e2e, on a control plane, with the race detector except for PROCESS_PACKAGES
	@$(INTEGRATION) "$$(go list ./... | grep -vE '/($(subst $(eval ) ,|,$(PROCESS_PACKAGES:./%=%)))$$')" -race -timeout 2h $(TESTFLAGS)
	@$(INTEGRATION) '$(filter-out ./test/e2e ./test/executors,$(PROCESS_PACKAGES))' -timeout 2h $(TESTFLAGS)
	@cd cmd/rolewright-helm && go test -count=1 ./...

.PHONY: test-compare
test-compare: setup setup-trace cluster-tools-kwok client-tools $(TOOLS)/gotestsum ## forked runs compared with plain ones
	@$(INTEGRATION) ./test/executors -timeout 2h $(TESTFLAGS)

.PHONY: test-e2e
test-e2e: setup cluster-tools-kwok client-tools $(TOOLS)/gotestsum ## the end-to-end tests
	@GOTESTSUM_FORMAT=testname $(INTEGRATION) ./test/e2e -timeout 1h $(TESTFLAGS)

INTEGRATION = $(TOOLS)/controlplane exec --pods-exec --audit-log audit.log -- tools/gotest.sh

.PHONY: test-race
test-race: setup setup-race setup-trace cluster-tools-kwok client-tools $(TOOLS)/gotestsum ## the tests of PROCESS_PACKAGES with the race detector
	@$(INTEGRATION) '$(PROCESS_PACKAGES)' -race -timeout 2h $(TESTFLAGS)

# Without the race detector: another line of Ansible causes no other races than those that make integration finds.
.PHONY: test-second-line
test-second-line: second-line cluster-tools $(TOOLS)/gotestsum ## the tests that depend on Ansible, on ansible-core 2.19 and ansible-runner 2.4
	@ROLEWRIGHT_TEST_EVERY_CASE=1 PATH=$(SECOND_LINE)/bin:$$PATH tools/gotest.sh './runner ./controller/extravars' -count=1 -timeout 2h $(TESTFLAGS)

# Tests of Ansible's texts, verdicts, values, hidden output and versions. make test-all also runs those that end processes,
# fill disks and recover runs.
.PHONY: test-second-line-short
test-second-line-short: ## of these, the tests that depend on the line of Ansible, not on processes and disks
	@$(MAKE) test-second-line TESTFLAGS='-run "^(Test|Fuzz)(Ansible|Verdict|SyntaxCheck|NoLog|Masked|Guard|Check_|Proof|FindLibraries|Strip|Run_(Passes|Leaves|Notes|Masks|AKilledModule|DaemonsEnd))" $(TESTFLAGS)'

# If this system is not Debian, or Debian's newest line is another one by now, the script says so and the tests are left out.
.PHONY: test-third-line
test-third-line: setup cluster-tools-kwok client-tools $(TOOLS)/gotestsum ## the tests that depend on Ansible, forked runs too, on ansible-core 2.22 with its own Python: 10 minutes
	@tools/ansible/third-line.sh $(THIRD_LINE) >/dev/null || { echo 'NOT RUN: `make test-third-line`, see above.'; exit 0; }; \
		PATH=$(THIRD_LINE)/bin:$$PATH tools/gotest.sh '$(THIRD_LINE_PACKAGES)' -count=1 -timeout 2h $(TESTFLAGS)
THIRD_LINE_PACKAGES = ./runner ./runner/syntaxcheck ./runner/warm ./controller/extravars ./test/executors

# Tests of verdicts, hidden output and forked modules, and of the parts of Ansible that forked runs rely on.
.PHONY: test-third-line-short
test-third-line-short: ## of these, the tests whose results differ most between lines
	@$(MAKE) test-third-line THIRD_LINE_PACKAGES='./runner ./runner/syntaxcheck ./runner/warm' TESTFLAGS='-run "^Test(Verdict|Check_|NoLog|Proof|Immortal|Run_CountsModules)" $(TESTFLAGS)'

.PHONY: test-forked
test-forked: second-line $(TOOLS)/gotestsum ## the fork server, verdicts, supervision and hostile data with forked runs, on the newer line of Ansible
	@TEST_EXECUTOR=warm PATH=$(SECOND_LINE)/bin:$$PATH tools/gotest.sh './runner ./runner/warm ./test/hostile' -count=1 -timeout 2h $(TESTFLAGS)

.PHONY: hostile
hostile: setup setup-trace second-line ## the corpus of hostile objects and events, a run for each, on both lines of Ansible, and the roles forked on the older one: 30 minutes
	@ROLEWRIGHT_TEST_EVERY_CASE=1 go test -count=1 -timeout 2h $(TESTFLAGS) ./test/hostile
	@ROLEWRIGHT_TEST_EVERY_CASE=1 PATH=$(SECOND_LINE)/bin:$$PATH go test -count=1 -timeout 2h $(TESTFLAGS) ./test/hostile
	@TEST_EXECUTOR=warm go test -count=1 -timeout 2h $(TESTFLAGS) -run TestRoles ./test/hostile
	@ROLEWRIGHT_TEST_EVERY_CASE=1 go test -count=1 $(TESTFLAGS) -run TestFollow_ManyEvents ./runner/jobevent

.PHONY: test-tools
test-tools: cluster-tools-kwok node-tools $(TOOLS)/gotestsum ## tests of the development control plane itself
	@cd tools && ./gotest.sh ./controlplane -race -timeout 2h $(TESTFLAGS)

# What a fault plan needs: the operator with its failpoints, and a scripted ansible-runner. RACE=1 builds the operator with
# the race detector. A race that it reports counts as a violation.
.PHONY: fault-tools
fault-tools: cluster-tools
	@CGO_ENABLED=$(if $(RACE),1,0) go build $(if $(RACE),-race) -trimpath -tags failpoint -ldflags '$(LDFLAGS)' -o $(BIN)/rolewright-failpoint ./cmd/rolewright
	@$(GO_BUILD) -o $(BIN)/fakerunner ./test/faults/fakerunner
	@$(GO_BUILD) -o $(BIN)/faults ./test/faults

.PHONY: fault-plans
fault-plans: fault-tools ## run the fixed fault plans with a scripted ansible-runner
	@$(FAULTS) -plans test/faults/testdata/plans -parallel 8 $(FAULTSFLAGS)

.PHONY: fault-plans-command
fault-plans-command: fault-tools ## the same plans, with watches whose command is the scripted program
	@$(FAULTS) -plans test/faults/testdata/plans -runner command -parallel 8 $(FAULTSFLAGS)

comma := ,
.PHONY: fault-plans-forked
fault-plans-forked: setup fault-tools ## the same plans and those of fork servers, with a scripted ansible-runner that a fork server starts
	@$(FAULTS) -plans test/faults/testdata/plans,test/faults/testdata/plans-forked -runner forked -parallel 4 $(FAULTSFLAGS)

# In most of the plans of fork servers, the operator, the server or a helper process dies early, and some runs are plain for
# that. Those about bad ends add runs that are forked, and that end in each way.
.PHONY: fault-plans-forked-short
fault-plans-forked-short: setup fault-tools ## of these, the plans of fork servers and of bad ends
	@$(FAULTS) -plans test/faults/testdata/plans-forked,$(subst $(eval ) ,$(comma),$(wildcard test/faults/testdata/plans/bad-ends-*.json)) -runner forked -parallel 4 $(FAULTSFLAGS)

# The parts of the whole campaign. Each part keeps its operator, its plans and its results in its own directory, so it can
# be stopped and resumed: make faults continues where it stopped, and make faults-part-PART does so for one part.
FAULTS_DIR    ?= $(BIN)/campaign
FAULTS_PARTS  := generated matrix fail-overs generated-forked matrix-forked fail-overs-forked soak soak-forked soak-real
faults-generated         := -generate 650 -parallel 6
faults-matrix            := -kill-matrix -parallel 8
faults-fail-overs        := -fail-overs 100 -parallel 5
faults-generated-forked  := -generate 650 -runner forked -parallel 4
faults-matrix-forked     := -kill-matrix -runner forked -parallel 4
faults-fail-overs-forked := -fail-overs 100 -runner forked -parallel 5
faults-soak              := -soak 10000
faults-soak-forked       := -soak 2000 -runner forked
faults-soak-real         := -soak 500 -runner real

.PHONY: faults
faults: setup fault-tools ## expose the operator to all faults: generated plans, kill matrices, fail-overs, soaks; hours, can be stopped and resumed
	@failed=; for part in $(FAULTS_PARTS); do $(MAKE) --no-print-directory faults-part-$$part || failed="$$failed $$part"; done; \
		if [ -n "$$failed" ]; then echo "not passed, or not whole:$$failed" >&2; exit 1; fi

.PHONY: $(FAULTS_PARTS:%=faults-part-%)
$(FAULTS_PARTS:%=faults-part-%): faults-part-%: setup fault-tools
	@$(FAULTS) $(faults-$*) -out $(FAULTS_DIR)/$* $(FAULTSFLAGS)

.PHONY: test-executors
test-executors: cluster-tools-kwok client-tools setup-trace ## the tests that depend on how runs are started, with each executor
	@for executor in warm runner; do \
		echo "with --executor=$$executor"; \
		TEST_EXECUTOR=$$executor $(TOOLS)/controlplane exec --pods-exec --audit-log audit.log -- go test -count=1 -timeout 2h $(TESTFLAGS) ./runner ./test/hostile ./test/e2e || exit; \
	done

# The cluster has one real node, which runs the Pods. The tag of the images is not "latest", so that the kubelet does not
# pull them.
.PHONY: e2e
e2e: setup setup-image setup-node cluster-tools $(TOOLS)/etcd node-tools client-tools build ## run the image in a real Pod of a real cluster: as root, on Debian
	@$(IMAGE) rolewright/binary:e2e $(IMAGE_ARGS) --target binary .
	@$(IMAGE) rolewright/operator:e2e $(IMAGE_ARGS) --target operator .
	@$(IMAGE) rolewright/charts:e2e $(IMAGE_ARGS) --target charts .
	@$(IMAGE) rolewright/example:e2e $(IMAGE_ARGS) .
	@$(IMAGE) own-base:e2e --file test/cluster/testdata/own-base.Dockerfile test/cluster/testdata
	@$(IMAGE) rolewright/rebased:e2e $(IMAGE_ARGS) --build-arg BASE=own-base:e2e --target operator .
	@$(IMAGE) own-ansible:e2e --file test/cluster/testdata/own-ansible.Dockerfile test/cluster/testdata
	@$(IMAGE) own-environment:e2e --target environment --file test/cluster/testdata/own-ansible.Dockerfile test/cluster/testdata
	@$(IMAGE) rolewright/elsewhere:e2e --file test/cluster/testdata/elsewhere.Dockerfile test/cluster/testdata
	@$(IMAGE) tea-operator:v0.0.1 --from rolewright/operator:e2e test/cluster/testdata/tea-operator
	@rm -rf $(IMAGES)/site-operator && mkdir -p $(IMAGES)/site-operator && cd $(IMAGES)/site-operator && \
		$(BIN)/rolewright init --domain example.com --name site-operator >/dev/null && \
		$(BIN)/rolewright create api --group web --version v1 --kind Site --finalizer >/dev/null
	@$(IMAGE) site-operator:v0.0.1 --from rolewright/operator:e2e $(IMAGES)/site-operator
	@$(IMAGE) memcached:1.6 --file test/cluster/testdata/memcached.Dockerfile test/cluster/testdata
	@$(IMAGE) etcd:v3.6.8,v3.6.9 --file test/cluster/testdata/etcd.Dockerfile $(TOOLS)
	@for example in memcached store chart; do \
		case $$example in chart) base=charts ;; *) base=operator ;; esac; \
		project=$(IMAGES)/gallery/$$example; rm -rf $$project; mkdir -p $(IMAGES)/gallery; cp -r examples/$$example $$project; \
		(cd $$project && $(BIN)/rolewright init && $(BIN)/rolewright generate manifests) >/dev/null; \
		$(IMAGE) gallery-$$example:v0.0.1 --from rolewright/$$base:e2e $$project; \
	done
	@$(TOOLS)/controlplane exec --node --audit-log audit.log --image $(IMAGES)/rolewright-example.tar --image $(IMAGES)/tea-operator.tar --image $(IMAGES)/site-operator.tar --image $(IMAGES)/memcached.tar \
		--image $(IMAGES)/etcd.tar --image $(IMAGES)/own-environment.tar --image $(IMAGES)/rolewright-elsewhere.tar --image $(IMAGES)/gallery-memcached.tar --image $(IMAGES)/gallery-store.tar --image $(IMAGES)/gallery-chart.tar -- \
		go test -tags e2e -count=1 -timeout 2h ./test/cluster $(TESTFLAGS)

.PHONY: transcript
transcript: ## write docs/in-a-cluster.md, which shows what make e2e does with the example operator: as root, on Debian
	@$(MAKE) e2e TESTFLAGS='-run=TestExample -transcript=$(CURDIR)/docs/in-a-cluster.md $(TESTFLAGS)'

.PHONY: test-image
test-image: setup-image cluster-tools-kwok client-tools ## the tests that depend on Ansible and Python, with those of the image: as root, on Debian
	@$(IMAGE) rolewright/operator:e2e $(IMAGE_ARGS) --target operator .
	@$(TOOLS)/controlplane exec --pods-exec -- env ROLEWRIGHT_TEST_EVERY_CASE=1 tools/image/test.sh controller/extravars runner/warm test/executors -- -test.timeout=2h $(TESTFLAGS)

# On a machine that cannot build images, the tests run on the newer line of Ansible instead.
.PHONY: test-image-where-possible
test-image-where-possible: $(TOOLS)/gotestsum
	@if tools/node/able.sh >/dev/null; then timeout --foreground 3h $(MAKE) test-image; else \
		echo 'NOT RUN: `make test-image`, see `make e2e`. Instead, on the newer line:'; \
		ROLEWRIGHT_TEST_EVERY_CASE=1 PATH=$(SECOND_LINE)/bin:$$PATH tools/gotest.sh './runner/warm ./test/executors' -count=1 -timeout 2h $(TESTFLAGS); fi

.PHONY: test-page
test-page: ## tests of the page in a real browser, where Chromium is or can be installed: as root, on Debian
	@tools/browser/install.sh $(BIN)/browser || { echo 'NOT RUN: `make test-page`. There is no Chromium.'; exit 0; }; \
	axe=$$(ls $(BIN)/browser/node_modules/axe-core/axe.min.js 2>/dev/null); \
	(cd test/page && go test -count=1 -timeout 2h $(TESTFLAGS) . -args $${axe:+-axe $$axe}) || exit 1; \
	[ -n "$$axe" ] || echo 'NOT RUN: the accessibility tests of `make test-page`. There is no axe-core.'

.PHONY: screenshots
screenshots: ## make the images of the page in docs/images, each view in both themes: as root, on Debian
	@tools/browser/install.sh $(BIN)/browser
	@cd test/page && go test -count=1 -run TestScreenshots . -args -screenshots $(CURDIR)/docs/images

.PHONY: e2e-where-possible
e2e-where-possible:
	@if reasons=$$(tools/node/able.sh); then timeout --foreground 3h $(MAKE) e2e; else \
		printf 'NOT RUN: `make e2e`. This machine cannot run a node:\n%s\n' "$$reasons"; fi

.PHONY: fuzz-short
fuzz-short: ## run every fuzz target for FUZZTIME (3000x: that many inputs)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: cover
cover: ## print the share of the product's statements that go test ./... covers without a control plane, in the process of the test
	@mkdir -p $(BIN)
	@ROLEWRIGHT_TEST_PARTS= go test -coverprofile=$(BIN)/cover.out -coverpkg="$$(go list ./... | grep -v /test/ | paste -sd,)" ./... >/dev/null
	@go tool cover -func=$(BIN)/cover.out | tail -1

.PHONY: lint
lint: lint-tools ## check formatting, style and the import directions
	@tools/words.sh
	@tools/python/check.sh
	@$(TOOLS)/golangci-lint run --build-tags e2e ./...
	@cd tools && $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./controlplane/...
	@cd tools/manifests && $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...
	@cd test/page && $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...
	@cd cmd/rolewright-helm && $(TOOLS)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...

.PHONY: bench
bench: setup cluster-tools build ## measure the operator's own overhead of a run, memory with many objects, the executors compared with each other, and how long runs take to end
	@$(GO_BUILD) -o $(BIN)/bench ./test/bench
	@$(GO_BUILD) -o $(BIN)/fakerunner ./test/faults/fakerunner
	@$(TOOLS)/controlplane exec -- $(BIN)/bench $(BENCHFLAGS)

.PHONY: bench-charts
bench-charts: setup cluster-tools-kwok build $(TOOLS)/helm ## run helm-operator, from its module, and Rolewright on the same charts, and print what they leave behind and what it costs
	@$(GO_BUILD) -o $(BIN)/charts ./test/charts
	@$(TOOLS)/controlplane exec --kwok --audit-log audit.log -- $(BIN)/charts $(BENCHFLAGS)

OBJECTS ?= 50000
.PHONY: simulate-scale
simulate-scale: setup cluster-tools-kwok ## print what replicas that share objects do: with 100 objects that run, and with OBJECTS=50000, of which 5 % change each minute while a replica is killed each minute, for each number in REPLICAS="1 2 4 8"; draw bin/scaling.svg: a real API server, runs that only wait
	@SCALE=100 $(TOOLS)/controlplane exec --kwok -- go test -count=1 -v -timeout 30m -run TestScale ./test/e2e
	@OBJECTS=$(OBJECTS) REPLICAS="$(REPLICAS)" PLOT=$(BIN)/scaling.svg $(TOOLS)/controlplane exec --kwok -- go test -count=1 -v -timeout 2h -run TestManyObjects ./test/e2e

JOBS ?= 2000
.PHONY: simulate-jobs
simulate-jobs: setup cluster-tools ## print what JOBS=2000 runs take at the same time, each in its own Pod, with a quota, evictions and a lost node: a real API server, Pods that are processes of this machine
	@JOBS=$(JOBS) $(TOOLS)/controlplane exec -- go test -count=1 -v -timeout 2h -run TestManyJobs ./test/e2e

.PHONY: bench-jobs
bench-jobs: ## print what a run as a Job costs compared with a forked one, COST=10 pairs, in a real Pod of a real cluster: as root, on Debian
	@COST=$(COST) $(MAKE) e2e TESTFLAGS='-run=TestJobs_Cost -v'
COST ?= 10

.PHONY: simulate-schedule
simulate-schedule: ## print how long runs wait, by cause: the real decision and queue, 5,000 objects, a clock that jumps
	@ROLEWRIGHT_TEST_EVERY_CASE=1 go test -count=1 -v -run TestSimulate ./controller

.PHONY: mutants
mutants: setup cluster-tools-kwok ## seed bugs into the operator, one at a time, and check whether fault plans find them; hours, can be stopped and resumed
	@$(GO_BUILD) -o $(BIN)/fakerunner ./test/faults/fakerunner
	@$(GO_BUILD) -o $(BIN)/mutants ./test/faults/mutants
	@$(TOOLS)/controlplane exec --audit-log audit.log -- $(BIN)/mutants -fakerunner $(BIN)/fakerunner -out $(BIN)/mutation $(MUTANTSFLAGS)

##@ Manifests

.PHONY: chart
chart: build $(TOOLS)/kubectl $(TOOLS)/helm ## make the Helm chart in dist/chart from config/
	@$(TOOLS)/kubectl kustomize config/default | $(BIN)/rolewright generate chart
	@$(TOOLS)/helm lint --strict --quiet dist/chart

.PHONY: bundle
bundle: build $(TOOLS)/kubectl ## make the OLM bundle, for the image IMG, in bundle/ from config/
	@$(TOOLS)/kubectl kustomize config/manifests | $(BIN)/rolewright generate bundle $(if $(IMG),--image $(IMG))

.PHONY: test-manifests
test-manifests: build client-tools ## tests of chart, bundle, rules and dashboard
	@cd tools/manifests && go test -count=1 $(TESTFLAGS) ./... # Go does not see that config/ has changed

##@ The development control plane

.PHONY: cluster-up
cluster-up: cluster-tools-kwok ## start a control plane in the background and print its export line
	@tools/cluster.sh up $(CLUSTER_DIR) $(TOOLS)/controlplane --kwok

.PHONY: cluster-down
cluster-down: ## stop what cluster-up started
	@tools/cluster.sh down $(CLUSTER_DIR)

# The servers and kubectl need Kubernetes' version linked into them, or clients cannot parse the version that they report.
KUBERNETES         := $(shell sed -n 's/^\tk8s.io\/kubernetes \(v[^ ]*\)$$/\1/p' tools/go.mod)
KUBERNETES_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES)

# Programs that are in KUBEBUILDER_ASSETS are not built.
assets = $(addprefix $(TOOLS)/,$(filter-out $(notdir $(wildcard $(addprefix $(or $(KUBEBUILDER_ASSETS),/nowhere)/,$(1)))),$(1)))

.PHONY: cluster-tools
cluster-tools: $(TOOLS)/controlplane $(call assets,etcd kube-apiserver kube-controller-manager) ## build the control plane
	@:

.PHONY: cluster-tools-kwok
cluster-tools-kwok: cluster-tools $(TOOLS)/kube-scheduler $(TOOLS)/kwok ## build the control plane with scheduler and kwok
	@:

.PHONY: node-tools
node-tools: $(TOOLS)/kubelet ## build the kubelet
	@:

.PHONY: client-tools
client-tools: $(TOOLS)/kubectl $(TOOLS)/helm $(TOOLS)/kustomize $(TOOLS)/promcheck $(TOOLS)/otelcol ## build what tests use: kubectl, Helm, Kustomize, promcheck for Prometheus queries, and the OpenTelemetry collector
	@:

.PHONY: lint-tools
lint-tools: $(TOOLS)/golangci-lint ## build the linter, and install those for Python
	@tools/python/install.sh

$(TOOLS)/controlplane: $(wildcard tools/controlplane/*.go) tools/go.mod
	cd tools && CGO_ENABLED=0 go build -o $@ ./controlplane

# A tool is built again when the pinned versions change. The first builds take minutes; later ones use Go's cache.
first_build = @echo 'Building $(@F). The first time that takes about $(1) on two cores.'

$(TOOLS)/etcd: tools/go.mod tools/go.sum
	$(call first_build,40 seconds)
	@cd tools && go build -ldflags '$(KUBERNETES_LDFLAGS)' -o $@ go.etcd.io/etcd/server/v3
	@touch $@

# The servers and kubectl.
$(TOOLS)/kube%: tools/go.mod tools/go.sum
	$(call first_build,$(if $(filter kube-apiserver,$(@F)),4 minutes,a minute))
	@cd tools && go build -ldflags '$(KUBERNETES_LDFLAGS)' -o $@ k8s.io/kubernetes/cmd/$(@F)
	@touch $@

# kwok's own files with stages, which describe how nodes and Pods change.
KWOK_STAGES := node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease pod/fast/pod-ready pod/fast/pod-complete pod/fast/pod-delete
$(TOOLS)/kwok: tools/kwok/go.mod tools/kwok/go.sum
	$(call first_build,2 minutes)
	@cd tools/kwok && go build -trimpath -ldflags '-s -w' -o $@ sigs.k8s.io/kwok/cmd/kwok
	@cd "$$(cd tools/kwok && go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage" && \
		for stage in $(KWOK_STAGES); do echo ---; cat $$stage.yaml; done > $@-stages.yaml
	@touch $@

# Helm reports its version to the API server, and to the Ansible modules that call it.
HELM := $(shell sed -n 's/^require helm.sh\/helm\/v3 \(v[^ ]*\)$$/\1/p' tools/helm/go.mod)
$(TOOLS)/helm: tools/helm/go.mod tools/helm/go.sum
	cd tools/helm && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X helm.sh/helm/v3/internal/version.version=$(HELM)' -o $@ helm.sh/helm/v3/cmd/helm
	@touch $@

$(TOOLS)/kustomize: tools/kustomize/go.mod tools/kustomize/go.sum
	cd tools/kustomize && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ sigs.k8s.io/kustomize/kustomize/v5
	@touch $@

$(TOOLS)/promcheck: $(wildcard tools/manifests/promcheck/*.go) tools/manifests/go.mod
	cd tools/manifests && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ ./promcheck

$(TOOLS)/otelcol: tools/otelcol/main.go tools/otelcol/go.mod
	cd tools/otelcol && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ .

$(TOOLS)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && go build -trimpath -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(TOOLS)/gotestsum: tools/gotestsum/go.mod tools/gotestsum/go.sum
	cd tools/gotestsum && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $@ gotest.tools/gotestsum
	@touch $@

##@ Housekeeping

.PHONY: setup
setup: ## install Ansible where it is missing: from apt as root on Debian, by pip elsewhere
	@tools/ansible/install.sh $(BIN)/ansible

.PHONY: second-line
second-line: setup
	@tools/ansible/second-line.sh $(SECOND_LINE) >/dev/null

.PHONY: third-line
third-line:
	@tools/ansible/third-line.sh $(THIRD_LINE) >/dev/null

# The race detector links C code.
.PHONY: setup-race
setup-race:
	@tools/compiler/install.sh

# Tests trace the files that a run touches.
.PHONY: setup-trace
setup-trace:
	@tools/strace/install.sh

.PHONY: setup-image
setup-image:
	@tools/image/install.sh

.PHONY: setup-node
setup-node:
	@tools/node/install.sh

.PHONY: clean
clean: ## stop the control plane and remove what was built
	@tools/cluster.sh down $(CLUSTER_DIR) >/dev/null
	rm -rf $(BIN)
