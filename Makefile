# What people and CI call. `make` alone prints the list.
CARGO ?= cargo
TARGET := x86_64-unknown-linux-gnu
# Published binaries are static: one file runs on any distribution.
STATIC_FLAGS := -C target-feature=+crt-static
# Half a megabyte less: relocations packed, functions that are the same kept once.
DIST_FLAGS := $(STATIC_FLAGS) -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all
# Where the binaries end up.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
DIST_DIR := $(TARGET_DIR)/dist-static
STATIC_DIR := $(TARGET_DIR)/static

# Debian packages, each with a file that shows it is installed.
PACKAGES := containerd:/usr/bin/containerd runc:/usr/sbin/runc \
	containernetworking-plugins:/usr/lib/cni/bridge busybox-static:/var/lib/dpkg/info/busybox-static.list \
	iproute2:/sbin/ip iptables:/usr/sbin/iptables docker-registry:/usr/bin/docker-registry \
	e2fsprogs:/sbin/mkfs.ext4 util-linux:/sbin/blkid

# A private containerd needs root; so do the tests that start one.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E env PATH="$$PATH")
ifneq ($(AS_ROOT),)
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER := sudo -E
endif

.DEFAULT_GOAL := help
.PHONY: help setup build run test vm lint bench interop soak dist static

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the Debian packages the tests and `make run` need
	@missing=""; \
	for entry in $(PACKAGES); do \
		[ -e "$${entry#*:}" ] || missing="$$missing $${entry%%:*}"; \
	done; \
	if [ -z "$$missing" ]; then echo "setup: nothing is missing"; exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "setup: install these by hand (no apt-get here):$$missing" >&2; exit 1; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then as_root=""; \
	elif command -v sudo >/dev/null; then as_root="sudo"; \
	else echo "setup: run as root, or install sudo, to install:$$missing" >&2; exit 1; fi; \
	echo "setup: installing$$missing"; \
	$$as_root apt-get update -qq || true; \
	DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y --no-install-recommends $$missing

build: ## Build klet, optimised
	$(CARGO) build --release -p klet

run: setup build ## Run the example pods on a private containerd until Ctrl-C
	$(CARGO) build --quiet --release -p xtask
	$(AS_ROOT) $(TARGET_DIR)/release/xtask run --klet $(TARGET_DIR)/release/klet

static: ## Build an unoptimised static klet: the tests put it into an image
	RUSTFLAGS="$(STATIC_FLAGS) -C strip=symbols" $(CARGO) build -p klet --target $(TARGET) \
		--target-dir $(STATIC_DIR)

test: export KLET_BIN := $(abspath $(TARGET_DIR))/debug/klet
test: export KLET_STATIC_BIN := $(abspath $(STATIC_DIR))/$(TARGET)/debug/klet
test: setup static ## Run every check and every test (some, as root, start a private containerd)
	$(CARGO) xtask tidy
	$(CARGO) build --workspace --bins
	@if $(CARGO) nextest --version >/dev/null 2>&1; then set -x; \
		$(CARGO) nextest run --workspace; \
	else set -x; \
		$(CARGO) test --workspace --all-targets; fi
	$(CARGO) test --workspace --doc

# In the guest klet and the tests are root; here nobody is.
vm: PACKAGES += qemu-system-x86:/usr/bin/qemu-system-x86_64
vm: setup ## Test on Debian's own kernel in a virtual machine: NFS, iSCSI, quotas, cgroup v2
	$(CARGO) build --workspace --bins
	$(TARGET_DIR)/debug/xtask vm --klet $(TARGET_DIR)/debug/klet $(VM_FLAGS)

lint: ## Format, clippy and tidy checks
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) xtask tidy

dist: ## Build the published binary: small and static
	RUSTFLAGS="$(DIST_FLAGS)" $(CARGO) build -p klet --profile dist --target $(TARGET) \
		--target-dir $(DIST_DIR)
	@ls -l $(DIST_DIR)/$(TARGET)/dist/klet

bench: setup dist ## Measure klet and write docs/benchmarks.md (UPSTREAM_KUBELET=path compares)
	$(CARGO) build --quiet --release -p xtask
	$(CARGO) build --quiet --release -p kubelet --example probe_cost
	$(AS_ROOT) $(TARGET_DIR)/release/xtask bench --klet $(DIST_DIR)/$(TARGET)/dist/klet \
		--probe-cost $(TARGET_DIR)/release/examples/probe_cost $(BENCH_FLAGS)

interop: export KLET_BIN := $(abspath $(TARGET_DIR))/release/klet
interop: setup build ## Try klet beside upstream's binaries (KUBEBUILDER_ASSETS, UPSTREAM_KUBELET, E2E_TEST, E2E_IMAGES)
	$(CARGO) build --quiet --release -p xtask
	$(CARGO) test -p e2e --test interop --test interop_kubectl --test takeover -- --nocapture --test-threads=1
	KUBECTL=$(KUBEBUILDER_ASSETS)/kubectl $(CARGO) test -p apiserver --test kubectl -- --nocapture
	$(AS_ROOT) $(TARGET_DIR)/release/xtask conformance --klet $(KLET_BIN) $(CONFORMANCE_FLAGS)

soak: ## Simulate whole nodes under faults with random seeds until Ctrl-C
	$(CARGO) run --release -p kubelet-sim --bin soak
