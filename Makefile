# SPDX-License-Identifier: LGPL-2.1-or-later
# Short names for what is done often; the build itself is meson's. BUILD=DIR chooses the build folder.

BUILD ?= build
JOBS  ?= $(shell nproc)
MESON_OPTIONS ?=

# tools beside the build find it under this name
export BUILD
export BUILDDIR := $(abspath $(BUILD))

.PHONY: all configure test test-long test-quick demo crash staleness coherence faults pool-faults mutants mutants-persist models campaign \
	bench-check lint test-sanitize install deb deb-check clean help

all: configure
	ninja -C $(BUILD) -j $(JOBS)

help:
	@echo 'make all            build into $(BUILD)/'
	@echo 'make test           packages if missing, build, every test (root: power cuts mount loop devices)'
	@echo 'make test-quick     the meson tests alone'
	@echo 'make demo           MariaDB with and without pmemlogd, a power cut, the proof; as root'
	@echo 'make crash          every crash state of the store path, compared with a model; STATES=n (a million: 1 minute)'
	@echo 'make staleness      every row of the judging table times every foreign change: 3 minutes'
	@echo 'make coherence      readers without the library beside writers and faults; SECONDS=n for each of ext4, xfs'
	@echo 'make faults         disks that fail, run full, go away, hang, are slow, under ext4 and xfs; 13 minutes, mostly waiting'
	@echo 'make killed         killed wherever a system call or a store has changed anything, run again, on ext4, a tenth on xfs;'
	@echo '                    clients; 500 random schedules: 22 minutes of a processor (measured part by part), most of the time waiting'
	@echo 'make pool-faults    every field of the pool damaged, every page, the folder as a whole, on ext4; 5 minutes of a processor; FS=xfs, FS=ext4,xfs'
	@echo 'make mutants-persist  every flush, drain, fence and sync of pool/ and daemon/logs/ taken away, one at a time: 10 minutes'
	@echo 'make mutants        do the tests notice each broken rule? some 360 patches: 40 minutes on two busy processors; tests/mutants/run --resume goes on'
	@echo 'make models         the shared rules as Promela models, checked exhaustively; two minutes; DEEP=1: ten'
	@echo 'make test-long      MySQL and PostgreSQL: power cuts, modes, backups, faults, controls; ONLY=pattern; 1.5 to 2 hours (added up, not run at once)'
	@echo 'make campaign       power cuts by the thousand, HOURS=h (1); reports in tests/reports/'
	@echo 'make bench-check    goal, measured, verdict'
	@echo 'make lint           format, manual pages, units, symbols'
	@echo 'make test-sanitize  unit, crash, recover and daemon tests under ASan + UBSan, those with threads under TSan; half an hour'
	@echo 'make install        [DESTDIR=...]'
	@echo 'make deb            Debian packages into $(BUILD)/deb; a minute'
	@echo 'make deb-check      installs, uses, removes and purges them in a Debian of their own; as root, two minutes'

# A folder that appeared since the last configure is found by --reconfigure only.
configure:
	@scripts/install-deps build
	@if [ -d $(BUILD)/meson-info ]; \
	then meson setup --reconfigure $(BUILD) $(MESON_OPTIONS) > $(BUILD)/configure.log \
		|| { cat $(BUILD)/configure.log; exit 1; }; \
	else meson setup $(BUILD) $(MESON_OPTIONS); fi

test:
	@scripts/install-deps all
	@$(MAKE) --no-print-directory all MESON_OPTIONS='-Dwerror=true -Dtests=enabled $(MESON_OPTIONS)'
	@tests/run --build $(BUILD)

test-quick: all
	@tests/run --build $(BUILD) --meson-only

demo:
	@scripts/install-deps all
	@$(MAKE) --no-print-directory all
	@scripts/demo

crash: all
	@tests/crash/run

staleness: all
	@tests/stale/run $(if $(ONLY),--only '$(ONLY)')

faults: all
	@for fs in ext4 xfs; do for engine in toydb mariadb; do \
		tests/db/stall $$engine --fs $$fs --fault disk || bad=1; done; done; exit $${bad:-0}

coherence: all
	@tests/coherence/run --seconds $(or $(SECONDS),15)

killed: all
	@tests/kill/run --share 1 --schedules 500 --jobs $(JOBS) --fs ext4,xfs

test-long: all
	@tests/run --build $(BUILD) --long $(if $(ONLY),--only '$(ONLY)')

campaign: all
	@tests/campaign --hours $(or $(HOURS),1)

pool-faults: all
	@tests/pool/run --fs $(or $(FS),ext4)
mutants-persist: all
	@tests/mutants/persist

mutants: all
	@tests/mutants/run

models:
	@tests/models/run $(if $(DEEP),--deep)

bench-check: all
	@bench/check

lint: all
	@scripts/lint $(BUILD)

test-sanitize:
	@scripts/install-deps all
	@scripts/test-sanitize

install: all
	meson install -C $(BUILD) --no-rebuild

deb:
	@scripts/make-deb $(BUILD)/deb

deb-check: deb
	@scripts/install-deps all
	@scripts/check-deb $(BUILD)/deb

clean:
	rm -rf $(BUILD) $(BUILD)-clang $(BUILD)-asan $(BUILD)-tsan $(BUILD)-mutants
