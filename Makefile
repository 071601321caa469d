# The one command surface: CI calls nothing else. `make help` lists the targets.

PORT ?= 6379
MEMORY ?= 1GiB
KEYS ?= 450000
KEYS_SERVER ?= 1000000
ROUNDS_SERVER ?= 3
ROUNDS_ALLOC ?= 15
REQUESTS ?= 200000
CODEC ?= auto
SECONDS_PER_RUN ?= 2
FUZZ_SECONDS ?= 60
IMAGES ?= 2000000
OPERATIONS ?= 20000000
FAR ?= /dev/shm/ziptier-soak
KILLS ?= 1000
MIB ?= 4096
SECONDS ?= 1800
FLIPS ?= 5000000
RUNS ?= 1000
INPUTS ?= 10000000
ROUNDS ?= 20
BASE ?= main
PROFILE ?= dev
PREFIX ?= $(abspath $(TARGET_DIR))/capi
HISTORIES ?= 4000
SIMULATIONS ?= 100000
MIRI_SEEDS ?= 64
# With CI=true everything that is built lies outside the checkout, so that the next run is quick; two checkouts do not
# share it, for Cargo tells fresh from stale by the time of a file, and times of two checkouts do not compare. What a
# machine may lack CI must have: a test that cannot run there fails. `.ci/run` sets CI=true. Only root is asked for
# mounts, and no machine for QPL, AVX-512 or an accelerator.
ifeq ($(CI),true)
export ZIPTIER_REQUIRED ?= corpus,rocksdb,aarch64,miri,virtual-machine$(shell [ `id -u` != 0 ] || echo ,mount)
export CARGO_TARGET_DIR ?= $(HOME)/.cache/ziptier/target-$(shell pwd | cksum | cut -d ' ' -f 1)
# Nobody edits there, so the compiler keeps nothing for a next edit, and it optimises each part of a crate by itself.
# Both together compile in three fifths of the time, and tests are hardly slower.
export CARGO_INCREMENTAL ?= 0
export CARGO_PROFILE_DEV_LTO ?= off
endif
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# Real files. `make corpus` puts them together unless ZIPTIER_CORPUS names a folder.
MADE_CORPUS := $(abspath $(TARGET_DIR))/corpus
ifeq ($(ZIPTIER_CORPUS),)
ZIPTIER_CORPUS := $(MADE_CORPUS)/files
CORPUS_TARGET := corpus
endif
export ZIPTIER_CORPUS MADE_CORPUS
# Files of several kinds: 450,000 values of 128 bytes take 58 MB.
BENCH_CORPUS ?= $(firstword $(wildcard $(ZIPTIER_CORPUS)/silesia) $(ZIPTIER_CORPUS))
TEXT = $(firstword $(wildcard $(ZIPTIER_CORPUS)/silesia/dickens.zst $(ZIPTIER_CORPUS)/text) $(ZIPTIER_CORPUS))
ZIPTIER := $(TARGET_DIR)/release/ziptier
PYTHON_ENV := $(TARGET_DIR)/python
NODE_MODULES := $(TARGET_DIR)/node
export ZIPTIER_NODE_MODULES := $(abspath $(NODE_MODULES))/node_modules
# RocksDB as its makers ship it, and its headers: only the plugin's crates need them.
ROCKSDB := $(abspath $(TARGET_DIR))/rocksdb
export ROCKSDB_INCLUDE_DIR ?= $(ROCKSDB)/include
export ZIPTIER_ROCKSDB_LIBRARY ?= $(ROCKSDB)/librocksdb.so
# The test runner and other tools that are crates, at the versions of scripts/tools.
TOOLS := $(abspath $(TARGET_DIR))/tools
export PATH := $(TOOLS)/bin:$(PATH)
# Every target has the pinned compiler.
ifeq ($(RUSTUP_TOOLCHAIN),)
PINNED := $(shell scripts/setup-rust name)
ifneq ($(PINNED),)
export RUSTUP_TOOLCHAIN := $(PINNED)
endif
endif
# 0 runs checks again of which nothing has changed since they passed.
STAMPS ?= 1
export STAMPS
export ZIPTIER_PYTHON := $(abspath $(PYTHON_ENV))/bin/python

.PHONY: help serve test quick steady test-model test-vm bench bench-server bench-eviction bench-cassandra figures fmt \
  lint fuzz faults torture soak all-places miri asan tsan asan-alloc tsan-alloc million shuttle setup setup-nextest \
  setup-test setup-rocksdb rocksdb-plugin tested-rocksdb-plugin rocksdb-examples rocksdb-tools rocksdb-crashtest \
  rocksdb-static bench-rocksdb bench-rocksdb-wal bench-rocksdb-cache bench-embedding bench-alloc compare-memory \
  test-alloc release capi header corpus deny notices setup-deb deb image release-check java cassandra bench-java \
  test-java test-java-aarch64 setup-java test-cassandra test-jvm test-mbwu test-report

help: ## list the targets
	@sed -E -e ':join' -e '/\\$$/ { N; s/ *\\\n[[:blank:]]*/ /; t join' -e '}' $(MAKEFILE_LIST) | \
	  sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1 \2/p' | \
	  while read -r target effect; do printf '  make %-19s  %s\n' "$$target" "$$effect"; done

serve: release ## set up, build and start the server: PORT=6379 MEMORY=1GiB CODEC=auto
	$(ZIPTIER) serve --port $(PORT) --memory $(MEMORY) --codec $(CODEC)

test: setup-test setup-rocksdb corpus ## set up and run every test; STAMPS=0 runs again what has passed unchanged: \
  Java, Cassandra, Miri, schedules, virtual machine
	@scripts/run-tests

quick: setup setup-nextest $(CORPUS_TARGET) ## format, and lint and test the packages that differ from main: BASE=main
	@scripts/quick $(BASE)

steady: setup-test setup-rocksdb $(CORPUS_TARGET) ## every test ROUNDS times idle and ROUNDS times beside busy \
  processes, and name what fails: ROUNDS=20
	@scripts/steady $(ROUNDS)

test-model: setup setup-nextest ## the tests of tree and store with the modelled accelerator behind its blocks
	ZIPTIER_TEST_ENGINE=model scripts/count-tests cargo nextest run --locked \
	  --package ziptier-tree --package ziptier

test-vm: setup setup-rocksdb ## far memory and a store on an emulated NVDIMM, killed and started again; for its \
  figures: PROFILE=release
	@tests/vm/run $(TARGET_DIR)/vm $(PROFILE)

test-cassandra: setup setup-java $(CORPUS_TARGET) ## every test of Cassandra's compressor, on one node and on three: \
  fifteen minutes of two cores
	cargo build --locked --package ziptier-jni --package ziptier-cli
	@scripts/test-cassandra

test-report: setup $(CORPUS_TARGET) ## pages of ziptier report in a browser, on light and dark screens and on paper: a \
  minute of two cores
	cargo build --locked --package ziptier-cli
	@scripts/test-report $(TARGET_DIR)/debug/ziptier $(abspath $(TARGET_DIR))/report

test-alloc: setup-test ## libziptier_alloc.so under a stock Redis with log, replica and cluster, under other programs, \
  under sanitizers, and on a NUMA node that goes away: minutes; ZIPTIER_ALLOC_CALLS=1000000
	cargo build --locked --package ziptier-alloc-preload
	scripts/count-tests cargo nextest run --locked --package ziptier-alloc --package ziptier-alloc-preload \
	  --run-ignored all
	scripts/count-tests cargo nextest run --locked --package ziptier-cli --test suite heaps_are_spread
	@scripts/sanitize-alloc address
	@scripts/sanitize-alloc thread
	@tests/vm/run $(TARGET_DIR)/vm

test-mbwu: setup setup-nextest setup-rocksdb ## what limits a platform, told of 20 whose limit was made, one after \
  the other; needs root: a quarter of an hour
	cargo nextest run --locked --package ziptier-cli --test suite --test-threads 1 --run-ignored only limits_are_told \
	  memory_limit_is_told

test-jvm: setup setup-java setup-rocksdb $(CORPUS_TARGET) ## the examples inside Lucene and Kafka, YCSB in front of \
  the server, the keys of the benchmark against YCSB, and a node of Cassandra 6: six minutes of two cores
	cargo build --locked --package ziptier-jni --package ziptier-cli
	@scripts/test-jvm

bench: release $(CORPUS_TARGET) ## operations per CPU-second beside bytes held, settled, of values that do not \
  overlap: BENCH_CORPUS=json KEYS=450000 SECONDS_PER_RUN=2
	$(ZIPTIER) bench --corpus $(BENCH_CORPUS) --value-order apart --keys $(KEYS) --target store,btreemap,hashmap,null \
	  --workload read_only,write_only --seconds $(SECONDS_PER_RUN) --warmup 3 --settle 10

bench-server: release $(CORPUS_TARGET) ## CPU time per operation and memory of the server beside a real \
  redis-server, in turns: ROUNDS_SERVER=3 KEYS_SERVER=1000000
	@scripts/setup redis-server:redis-server
	$(ZIPTIER) bench-server --corpus $(TEXT) --keys $(KEYS_SERVER) --rounds $(ROUNDS_SERVER) \
	  --out $(TARGET_DIR)/bench-server.tsv

bench-cassandra: setup setup-java $(CORPUS_TARGET) ## Cassandra's own compressors beside ziptier's on nodes that this \
  starts and stops, in less than fifteen minutes: CASSANDRA=5 NODES=1 ROWS=20000 ROUNDS=2 SECONDS_PER_RUN=2 CHUNKS=16384
	cargo rustc --release --locked --package ziptier-jni --lib --crate-type staticlib
	cargo build --release --locked --package ziptier-cli --features cql
	BENCH_CORPUS=$(BENCH_CORPUS) scripts/bench-cassandra $(ZIPTIER) --out $(TARGET_DIR)/bench-cassandra

bench-eviction: setup ## hit ratios of a store that evicts beside LRU, S3-FIFO and W-TinyLFU at equal bytes: \
  ZIPTIER_TRACES=a folder with OLTP.lis.zst and P3.lis.zst
	cargo bench --locked --package ziptier --bench eviction

bench-rocksdb: rocksdb-plugin rocksdb-tools ## RocksDB's own db_bench with ziptier's compression, log and cache, and \
  without: ROUNDS=3
	scripts/bench-rocksdb $(ROCKSDB) $(TARGET_DIR)/release/libziptier_rocksdb.so $(TARGET_DIR)

bench-rocksdb-wal: rocksdb-plugin ## durable puts of RocksDB with its own log and with ziptier's, on a disk and in \
  memory: ROUNDS=7
	scripts/bench-rocksdb-wal $(ROCKSDB) $(abspath $(TARGET_DIR))/release

bench-rocksdb-cache: rocksdb-plugin $(CORPUS_TARGET) ## RocksDB's reads after a restart, with its blocks kept on \
  files and without
	scripts/bench-rocksdb-cache $(TARGET_DIR)/release/libziptier_rocksdb.so $(ROCKSDB) \
	  $(firstword $(wildcard $(ZIPTIER_CORPUS)/calgary) $(ZIPTIER_CORPUS)) $(TARGET_DIR)

bench-embedding: setup $(CORPUS_TARGET) ## gets of a program outside this checkout over the same inside, in turns: \
  ROUNDS=20
	scripts/bench-embedding $(TARGET_DIR) $(TEXT) $(ROUNDS)

bench-alloc: setup ## CPU time of a stock redis-server per SET and GET with libziptier_alloc.so and without: \
  ROUNDS_ALLOC=15 REQUESTS=200000
	@scripts/setup redis-server:redis-server redis-benchmark:redis-tools python3:python3
	cargo build --release --locked --package ziptier-alloc-preload
	scripts/bench-alloc $(TARGET_DIR)/release/libziptier_alloc.so $(ROUNDS_ALLOC) $(REQUESTS)

compare-memory: release $(CORPUS_TARGET) ## bytes, CPU time, latency and price of a stock redis-server in DRAM, with \
  far memory and in memory mode, and of ziptier serve; far memory is modelled: a quarter of an hour; ROUNDS=3 \
  KEYS=200000
	@scripts/setup redis-server:redis-server valgrind:valgrind python3:python3
	scripts/compare-memory $(ZIPTIER) $(TARGET_DIR)/release/libziptier_alloc.so $(TEXT) $(TARGET_DIR)/compare-memory.tsv

figures: release $(CORPUS_TARGET) ## measure every figure of docs/MEASUREMENTS.md
	scripts/figures $(ZIPTIER) $(ZIPTIER_CORPUS)

fmt: ## format the code
	cargo fmt --all

lint: setup setup-rocksdb ## formatting, 120 columns, links of pages, imports of modules, clippy, features, the C \
  header, documentation, and that the code for aarch64 and for fuzzing compiles
	cargo fmt --all --check
	@scripts/setup python3:python3
	scripts/lint-columns
	scripts/lint-links
	scripts/lint-modules
	scripts/lint-versions
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/lint-features
	scripts/lint-formats
	@scripts/setup-tool $(TOOLS) cbindgen
	scripts/header check
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	@scripts/stamped aarch64 \
	  "ziptier-deflate ziptier-accel ziptier-codec ziptier-tree ziptier ziptier-server ziptier-media \
	  ziptier-capi ziptier-jni ziptier-alloc ziptier-alloc-preload" \
	  "scripts/check-aarch64 scripts/setup-aarch64" -- scripts/check-aarch64
	@scripts/stamped fuzzing ziptier "" -- env RUSTFLAGS="--cfg fuzzing" CARGO_TARGET_DIR=$(TARGET_DIR)/fuzzing \
	  cargo check --locked --quiet --no-default-features -p ziptier

fuzz: setup ## fuzz every target: FUZZ_SECONDS=60
	@scripts/setup-tool $(TOOLS) cargo-fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

faults: setup ## ten million accelerator jobs under injected faults
	cargo run --release --locked --package ziptier-accel --example injected_faults

# Each run has another seed unless ZIPTIER_SEED names one.
torture: export ZIPTIER_SEED := $(or $(ZIPTIER_SEED),$(shell date +%s))
torture: setup setup-nextest setup-rocksdb ## recover from power cuts, kills and flipped bits, and check histories: \
  IMAGES=2000000 KILLS=1000 FLIPS=5000000 RUNS=1000 INPUTS=10000000 HISTORIES=4000 SIMULATIONS=100000 MIRI_SEEDS=64
	@echo "ZIPTIER_SEED=$$ZIPTIER_SEED repeats this run"
	cargo run --release --locked -p ziptier-media --example crash_images -- $(IMAGES)
	ZIPTIER_IMAGES=$(IMAGES) cargo test --release --locked -p ziptier-media --lib a_crash_loses_no_acknowledged_block
	ZIPTIER_IMAGES=1000 cargo test --release --locked -p ziptier-media --test suite -- log_failures_are_told::
	cargo run --release --locked -p ziptier --example store_crash_images -- $(IMAGES)
	ZIPTIER_IMAGES=$(IMAGES) cargo test --release --locked -p ziptier --test suite -- \
	  power_cuts_during_checkpoints_lose_nothing:: --nocapture
	ZIPTIER_IMAGES=$(IMAGES) cargo test --release --locked -p ziptier --test suite -- \
	  power_cuts_beside_writers_checkpoints_and_ssd_lose_nothing:: --nocapture
	ZIPTIER_FLIPS=$(FLIPS) cargo test --release --locked -p ziptier --test suite -- \
	  every_flipped_bit_is_found:: --nocapture
	ZIPTIER_IMAGES=$(IMAGES) cargo test --release --locked -p ziptier --test suite -- \
	  a_power_cut_loses_nothing_acknowledged:: --nocapture
	ZIPTIER_IMAGES=1000 cargo test --release --locked -p ziptier --test suite -- \
	  a_cache_comes_back_without_old_values::
	ZIPTIER_IMAGES=$(IMAGES) cargo test --release --locked -p ziptier-rocksdb --lib \
	  a_power_cut_leaves_all_that_was_synced -- --nocapture
	ZIPTIER_RUNS=$(RUNS) ZIPTIER_STEPS=20000 cargo test --release --locked -p ziptier --test suite -- \
	  store_agrees_with_a_btreemap:: --nocapture
	ZIPTIER_SIMULATIONS=$(SIMULATIONS) cargo test --release --locked -p ziptier --lib simulation::
	ZIPTIER_ROUNDS=1000 cargo test --release --locked -p ziptier --test suite -- readers_see_whole_versions::
	ZIPTIER_ROUNDS=12 cargo test --release --locked -p ziptier --test suite -- readers_see_whole_values_while_they_move
	ZIPTIER_WRITES=400000 cargo test --release --locked -p ziptier --test suite -- \
	  cold_leaves_are_read_and_written_at_once::
	ZIPTIER_ROUNDS=100 cargo test --release --locked -p ziptier-server --test suite -- \
	  thousands_of_random_commands_are_answered_alike
	ZIPTIER_INPUTS=$(INPUTS) cargo test --release --locked -p ziptier-server --test suite -- \
	  malformed_input_never_stops_the_server:: --nocapture
	ZIPTIER_SCHEDULES=50 scripts/explore-schedules
	scripts/run-asan
	scripts/run-tsan
	scripts/sanitize-alloc address
	scripts/sanitize-alloc thread
	scripts/test-aarch64
	ZIPTIER_MIRI_SEEDS=$(MIRI_SEEDS) scripts/run-miri
	scripts/refuse-fault $(HISTORIES)
	ZIPTIER_HISTORIES=$(HISTORIES) cargo test --release --locked -p ziptier --test suite -- \
	  histories_are_linearizable::
	ZIPTIER_HISTORIES=$(HISTORIES) cargo test --release --locked -p ziptier-server --test suite -- \
	  histories_over_the_wire_are_linearizable::
	ZIPTIER_KILLS=$(KILLS) cargo test --release --locked -p ziptier-cli --test suite -- \
	  a_killed_server_loses_nothing_acknowledged:: --nocapture

soak: setup setup-rocksdb release rocksdb-plugin $(CORPUS_TARGET) ## twenty million operations on eight times what \
  DRAM may hold, of a store and of a server, and all combinations of the tests: OPERATIONS=20000000 FAR=a file
	@scripts/setup redis-cli:redis-tools redis-benchmark:redis-tools python3:python3
	cargo run --release --locked -p ziptier --example far_pressure -- $(OPERATIONS) 64 $(FAR)
	scripts/soak-server $(ZIPTIER) $(OPERATIONS) 64 $(FAR)-server
	ZIPTIER_SOAK=1 cargo test --release --locked -p ziptier-cli --test suite -- \
	  the_memory_limit_bounds_the_process:: --nocapture --test-threads 1
	ZIPTIER_SOAK=1 cargo test --release --locked -p ziptier-cli --bin ziptier --test suite -- \
	  rocksdb_conforms the_smoke_test the_matrix_is_announced
	ZIPTIER_SOAK=1 cargo test --release --locked -p ziptier-codec -p ziptier-deflate --tests
	ZIPTIER_SOAK=1 cargo test --release --locked -p ziptier-alloc --lib every_mix_of_sizes
	ZIPTIER_ROUNDS=60 cargo test --release --locked -p ziptier-rocksdb-plugin --test suite -- what_a_killed_writer
	cargo run --release --locked -p ziptier-server --example attacks -- $(ZIPTIER)
	scripts/soak-cache $(ZIPTIER) $(firstword $(wildcard $(ZIPTIER_CORPUS)/calgary/book1) $(ZIPTIER_CORPUS)/text)

all-places: release $(CORPUS_TARGET) ## 4 GiB of values in DRAM, far memory, SSD and a folder, killed, read back and \
  checked: MIB=4096
	@scripts/setup redis-cli:redis-tools
	cargo build --release --locked -p ziptier-server --example fill_and_audit
	scripts/all-places $(ZIPTIER) $(TARGET_DIR)/release/examples/fill_and_audit $(ZIPTIER_CORPUS) $(MIB)

shuttle: setup setup-nextest ## explore the schedules of the lock-free parts
	@scripts/explore-schedules

miri: setup setup-nextest ## run the unsafe modules under Miri
	@STAMPS=0 scripts/run-miri

asan: setup setup-nextest ## run the tests of crates with unsafe code under AddressSanitizer
	@scripts/run-asan

tsan: setup setup-nextest ## run the tests with threads under ThreadSanitizer
	@scripts/run-tsan

asan-alloc: setup setup-nextest ## random calls of libziptier_alloc.so's functions under AddressSanitizer: \
  ZIPTIER_ALLOC_CALLS=1000000
	@scripts/sanitize-alloc address

tsan-alloc: setup setup-nextest ## random calls of libziptier_alloc.so's functions under ThreadSanitizer: \
  ZIPTIER_ALLOC_CALLS=1000000
	@scripts/sanitize-alloc thread

million: setup ## pack and unpack a million blocks across software and the modelled accelerator
	cargo run --release --locked --package ziptier-accel --example blocks_across_engines

release: setup
	cargo build --release --locked --package ziptier-cli
	cargo build --release --locked --package ziptier-alloc-preload

capi: setup ## the library for C programs, its header and its pkg-config file, into a folder: PREFIX=target/capi
	cargo rustc --release --locked --package ziptier-capi --lib --crate-type staticlib
	@scripts/install-capi $(TARGET_DIR)/release/libziptier_capi.a $(PREFIX)

java: setup setup-java ## the jar for Java programs, with the native libraries, into target/java-release
	cargo rustc --release --locked --package ziptier-jni --lib --crate-type staticlib
	@scripts/build-jni-aarch64
	@scripts/java release package -DskipTests

cassandra: setup setup-java ## the jar for nodes of Cassandra, with the native library, into target/java-release
	cargo rustc --release --locked --package ziptier-jni --lib --crate-type staticlib
	@scripts/java release package -DskipTests --activate-profiles cassandra

bench-java: setup setup-java $(CORPUS_TARGET) ## blocks through the Java library beside lz4-java, zstd-jni and \
  java.util.zip: JMH=options of JMH, such as "-f 3"
	cargo rustc --release --locked --package ziptier-jni --lib --crate-type staticlib
	@scripts/java release package -DskipTests --activate-profiles bench
	java -cp "$(TARGET_DIR)/java-release/ziptier-bench/ziptier-bench.jar:$(TARGET_DIR)/java-release/ziptier-bench/lib/*" \
	  io.ziptier.bench.Bench $(JMH)

test-java: setup setup-java ## the tests of the Java library, in a JVM that checks each JNI call
	cargo build --locked --package ziptier-jni
	@scripts/count-tests scripts/test-java

test-java-aarch64: setup setup-java ## the same for aarch64, in a JVM that qemu executes
	cargo rustc --release --locked --package ziptier-jni --lib --crate-type staticlib
	@scripts/count-tests scripts/test-java-aarch64

header: setup ## write the header for C programs, crates/capi/include/ziptier.h
	@scripts/setup-tool $(TOOLS) cbindgen
	@scripts/header

corpus: setup ## put real files of several kinds together, from Debian packages and the crates of Cargo.lock, into \
  target/corpus
	@scripts/setup python3:python3
	@scripts/make-corpus $(MADE_CORPUS)

deny: setup ## licences, sources, features and known weaknesses of all dependencies
	@scripts/setup-tool $(TOOLS) cargo-deny
	@scripts/deny

notices: setup ## write THIRD-PARTY-NOTICES: the licences of all that ziptier contains
	@scripts/setup-tool $(TOOLS) cargo-about
	@scripts/notices

setup-deb: release
	@scripts/setup-tool $(TOOLS) cargo-deb
	@scripts/setup dpkg-shlibdeps:dpkg-dev

deb: setup-deb ## the Debian package of the server, into target/debian
	@scripts/build-deb 1

image: setup-deb ## the image of the server, by docker: ziptier
	@mkdir -p $(TARGET_DIR)/image
	@cp `scripts/build-deb 1` $(TARGET_DIR)/image/ziptier.deb
	docker build --tag ziptier --file packaging/Dockerfile $(TARGET_DIR)/image

release-check: setup-deb setup-rocksdb ## package all crates, check dependencies and notices, and install, start, \
  stop, upgrade and remove the server in a clean Debian
	@scripts/setup-tool $(TOOLS) cargo-deny cargo-about
	@scripts/setup mmdebstrap:mmdebstrap systemd-nspawn:systemd-container buildah:buildah
	@scripts/release-check $(abspath $(TARGET_DIR))/release-check

setup:
	@scripts/setup cc:gcc make:make cargo:cargo pkg-config:pkg-config
	@pkg-config --exists zlib || scripts/setup no-zlib-yet:zlib1g-dev
	@scripts/setup-rust

setup-rocksdb: ## fetch RocksDB 11.8.1: its headers, and the library from its makers' jar
	@scripts/setup-rocksdb $(ROCKSDB)

rocksdb-plugin: setup setup-rocksdb ## the shared objects that a RocksDB loads, into target/release
	cargo build --release --locked --package ziptier-rocksdb-loader --package ziptier-rocksdb-plugin

rocksdb-examples: rocksdb-plugin ## the examples of docs/rocksdb.md in C, C++, Java and Rust, into \
  target/rocksdb-examples
	@scripts/rocksdb-examples $(ROCKSDB) $(abspath $(TARGET_DIR))/release $(abspath $(TARGET_DIR))/rocksdb-examples

rocksdb-tools: setup setup-rocksdb ## RocksDB's db_bench and db_stress, unmodified, from its sources, into \
  target/rocksdb/tools
	@scripts/build-rocksdb-tools $(ROCKSDB)

rocksdb-crashtest: rocksdb-plugin rocksdb-tools ## RocksDB's own crash test with ziptier's compression, log and cache: \
  SECONDS=1800
	scripts/rocksdb-crashtest $(ROCKSDB) $(TARGET_DIR)/release/libziptier_rocksdb.so $(TARGET_DIR) $(SECONDS)

rocksdb-static: setup setup-rocksdb ## compile all of RocksDB, link it with the plugin into the Rust example, run \
  that: half an hour of two cores
	scripts/rocksdb-static $(abspath $(TARGET_DIR))

# The same for tests, which find them beside themselves.
tested-rocksdb-plugin: setup setup-rocksdb
	cargo build --locked --package ziptier-rocksdb-loader --package ziptier-rocksdb-plugin

setup-java: setup
	@scripts/setup javac:openjdk-17-jdk-headless mvn:maven

setup-nextest: setup
	@scripts/setup-tool $(TOOLS) cargo-nextest

setup-test: setup-nextest setup-java
	@scripts/setup redis-server:redis-server redis-cli:redis-tools redis-benchmark:redis-tools python3:python3 \
	  openssl:openssl lz4:lz4 zstd:zstd node:nodejs npm:npm
	@scripts/setup-python $(PYTHON_ENV)
	@scripts/setup-node $(NODE_MODULES)
