#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [PART]: the full numbers of which `make test` takes a sample. PART is one of `parts` below, each under 40 minutes but
# `rounds`, which takes hours; without one, all of them. What it says is also in build/soak.log, or build/soak-PART.log.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

# All of these can be set from outside.
kills=${KILLS:-1000}
crowd=${CROWD:-2000}
events=${EVENTS:-100000000}
storm=${STORM:-100000}
forks=${FORKS:-200}
gpus=${GPUS:-1000}
ooms=${OOMS:-60}
fillings=${FILLINGS:-60}
pairs=${PAIRS:-200}
culprits=${CULPRITS:-200}
asked=${ASKED:-1000}
networks=${NETWORKS:-100}
keepers=${KEEPERS:-400}
sights=${SIGHTS:-40}
fleets=${FLEETS:-100}
parquets=${PARQUETS:-2000}
sparks=${SPARKS:-256} # ranks
torch=${TORCH:-2.3.1}
rounds=${ROUNDS:-20}
fuzz_for=${FUZZ_SECONDS:-600}
judged=${JUDGED:-100000} # random programs
wasteful=${WASTEFUL:-20000}
allocators=${ALLOCATORS:-1000} # random programs for each release
allocator_releases=${ALLOCATOR_RELEASES:-2.1.2 2.2.2 2.3.1 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.0 2.12.1 2.13.0 2.14.0 2.15.0}
npu_texts=${NPU_TEXTS:-40} # settings of torch_npu's pool, 40 random programs each
npu_releases=${NPU_RELEASES-} # besides that of build/venv-npu; each takes up to 7 GB
mended=${MENDED:-40}
mutants=${MUTANTS:-40}
seed=${SEED:-$(date +%s)} # of the mutants
fuzz_lanes=${FUZZ_LANES:-$(($(nproc) < 3 ? 3 : $(nproc)))} # fuzzers at a time

processes_py=tests/e2e/test_processes.py

# -rP: the figures that the tests print stand in the log.
soak_kills() {
	step "kills: $kills times" suite kills tests/crash --kills="$kills" -rP
}

soak_processes() {
	step "processes: $crowd of one launch" suite processes "$processes_py" --crowd="$crowd" -rP \
		-k "descriptors or one_launch or max_disk or namespace"
}

soak_events() {
	step "events: $events" suite events "$processes_py" --events="$events" -rP -k many_events
}

soak_gpus() {
	step "gpus: $gpus random programs on CUDA's driver" suite gpus tests/e2e/test_cuda.py --gpus="$gpus" -rP -k many_threads
}

soak_ooms() {
	step "ooms: $ooms programs that run out of memory" suite ooms tests/e2e/test_oom.py tests/e2e/test_gpu_memory.py --ooms="$ooms" -rP
	step "ooms: $fillings programs that are told in time" suite fillings tests/e2e/test_forecast.py --fillings="$fillings" -rP
}

soak_pairs() {
	step "pairs: $pairs of programs and of operators that differ in one thing" suite pairs tests/e2e/test_compare_pairs.py \
		--pairs="$pairs" -rP
}

soak_culprits() {
	step "culprits: watched memory overwritten $culprits times" suite culprits tests/e2e/test_culprits.py --culprits="$culprits" -rP
}

soak_forks() {
	step "forks: $storm amid allocating threads" suite forks "$processes_py" --storm="$storm" -rP -k amid_allocating
	step "forks: $forks of each kind while the loader is busy" suite forks-walks tests/e2e/test_fork_walks.py --forks="$forks"
}

soak_fuzz() {
	step "fuzz: build" build fuzz tests/fuzz/all
	step "fuzz: $fuzz_for s each, $fuzz_lanes at a time" fuzz_in_lanes "$fuzz_lanes" "$fuzz_for"
}

soak_asked() {
	step "asked: $asked random files and programs of each kind" suite asked tests/e2e/test_analyze.py --asked="$asked"
}

soak_clients() {
	step "clients: every torch_npu that is supported" suite clients tests/realclients -rP
	MSMEMSCOPE_RANKS=8 step "clients: eight ranks" suite ranks tests/realclients/test_ranks.py -rP
}

# All of PyTorch's operator database by type, against the CPU: the table of simnpu/README.md.
soak_operators() {
	step "operators: PyTorch's operator database on the simulated NPU" suite operators tests/realclients/soak_operators.py -rP
}

# 6 GB each; environments that are there are used again.
soak_wheels() {
	step "wheels: older versions of torch_npu, each with its PyTorch" suite wheels tests/realclients/soak_wheels.py -rP
}

# An old PyTorch, 2 GB with its CUDA libraries, which nothing here uses; or any Python with one, by $MSMEMSCOPE_TORCH.
soak_torch() {
	if [ -z "${MSMEMSCOPE_TORCH:-}" ]; then
		export MSMEMSCOPE_TORCH=$PWD/build/venv-torch-$torch/bin/python
		[ -x "$MSMEMSCOPE_TORCH" ] || step "torch: install $torch" install_torch "build/venv-torch-$torch"
	fi
	step "torch: $("$MSMEMSCOPE_TORCH" -c 'import torch; print(torch.__version__)')" suite torch tests/e2e/test_torch.py \
		tests/e2e/test_operators.py \
		tests/e2e/test_auto_steps.py tests/e2e/test_leak_truth.py tests/e2e/test_describe.py tests/e2e/test_snapshot.py -rP
	unset MSMEMSCOPE_TORCH
}

install_torch() {
	/usr/bin/python3 -m venv "$1"
	"$1/bin/pip" --quiet --disable-pip-version-check install "torch==$torch"
}

# pip builds it all, from the archive of the source, in an environment that has nothing but pip.
soak_sdist() {
	sdist_place=$(mktemp -d)
	/usr/bin/python3 -m venv "$sdist_place/venv"
	"$python" -c 'import sys; sys.path.insert(0, "tools"); import build_wheel; build_wheel.build_sdist(sys.argv[1])' "$sdist_place"
	step "sdist: pip install of the source archive" "$sdist_place/venv/bin/pip" install --no-index "$sdist_place"/msmemscope-*.tar.gz
	step "sdist: does it work?" "$sdist_place/venv/bin/msmemscope" selftest
	rm -rf "$sdist_place"
}

soak_dryrun() {
	step "dryrun: habits of scripts, against the computing simulated NPU" suite dryrun tests/realclients/soak_dryrun.py -rP
	# Wheels of PyTorch for CUDA, up to 0.8 GB each; those that are there are used again.
	step "dryrun: PyTorch for CUDA on the simulated CUDA" suite dryrun_cuda tests/realclients/soak_dryrun_cuda.py
}

soak_mindspore() {
	step "mindspore: its tensors and operators" suite mindspore tests/realclients/soak_mindspore.py -rP
}

# Real packages of many versions from PyPI, up to 2 GB; those that are there are used again.
soak_hooks() {
	step "hooks: vLLM, vLLM-Ascend and verl of many versions" suite hooks tests/realclients/soak_hooks.py -rP
}

# Random programs with known truth, all bars of docs/decisions/0015-leaks-by-growth.md; and what inefficient memory costs.
soak_judge() {
	step "judge: build" build release test_inefficient judge judge_forecast judge_host
	step "waste: $wasteful random programs" env MSCOPE_TEST_PROGRAMS="$wasteful" build/release/tests/unit/test_inefficient
	MSCOPE_TEST_PROGRAMS=$mended step "waste: $mended programs that are mended" suite waste tests/e2e/test_inefficient.py -k mended
	step "judge: $judged random programs" build/release/tests/judge/judge 500 "$judged" 1
	step "judge: memory of the host" build/release/tests/judge/judge_host 20000 1
	step "judge: forecasts" build/release/tests/judge/judge_forecast 3000 1
}

# The real allocators of PyTorch releases against our twin: wheels of some 500 MB each are downloaded once (tests/oracle/oracle.py).
soak_allocator() {
	# shellcheck disable=SC2086  # a list of words
	step "allocator: $allocators random programs for each of: $allocator_releases" \
		python3 tests/oracle/oracle.py check $allocator_releases --runs="$allocators"
	# shellcheck disable=SC2086
	step "allocator: their snapshots, from the start and from the middle" \
		python3 tests/oracle/oracle.py replay $allocator_releases --runs="$allocators"
}

soak_npu_pool() {
	step "npu-pool: $npu_texts settings of torch_npu's pool${npu_releases:+, also of $npu_releases}" with_texts suite npu-pool \
		tests/realclients/soak_pool.py -rP
}

with_texts() {
	MSMEMSCOPE_TEXTS=$npu_texts MSMEMSCOPE_NPU_RELEASES=$npu_releases "$@"
}

soak_page() {
	step "page: $sights random histories, and 1,000 processes of one page" suite page tests/e2e/test_view_truth.py tests/e2e/test_view.py \
		--sights="$sights" --processes_seen=1000
}

soak_keepers() {
	step "keepers: $keepers programs that keep tensors" suite keepers tests/e2e/test_keepers.py --keepers="$keepers" -rP
}

soak_networks() {
	step "networks: $networks that are decomposed" suite networks tests/e2e/test_networks.py --networks="$networks" -rP
	step "networks: operators of 20" suite operators tests/e2e/test_operators.py --networks="$networks" -rP
}

soak_fleet() {
	step "fleet: 1,024 ranks of 500 places, $fleets runs with outliers, 200 runs with a commit" suite fleet tests/e2e/test_fleet.py \
		--armada=1024 --fleets="$fleets" --pasts=200 -rP
}

# What the launches of every end-to-end test wrote, in every form: traces of any size, every process, both dumps.
soak_same() {
	MSMEMSCOPE_SAME=all step "same: every launch of the end-to-end tests, in every form" suite same tests/e2e
}

soak_matrix() {
	step "matrix: the manuals' examples, started in each way, in each form, with each framework" suite matrix \
		tests/e2e/test_matrix.py --ways=16 -rP
}

# The tests of `make check` and all that wait for another process, three times: on one core, with eight busy loops on the machine.
soak_load() {
	core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
	loops=
	for _ in 1 2 3 4 5 6 7 8; do
		sh -c 'while kill -0 "$1" 2>/dev/null; do :; done' loop $$ &
		loops="$loops $!"
	done
	load_status=0
	for round in 1 2 3; do
		step "load: round $round of 3" loaded "$round" || load_status=1
	done
	# shellcheck disable=SC2086  # a list of words
	kill $loops
	return $load_status
}

loaded() {
	taskset -c "$core" "$python" -m pytest -q -ra -p no:cacheprovider --junitxml "$results/load-$1.xml" \
		--listed=tests/check.list --waiting tests/e2e
}

# Which lines a test executes is asked once (30 minutes of CPU time); what was tried stays in tests/mutants.list.
soak_mutants() {
	[ -s build/covered/tests ] || step "mutants: which lines each end-to-end test executes" "$python" tools/covered.py run tests/e2e
	step "mutants: $mutants wrong lines, seed $seed" "$python" tools/mutants.py run "$seed" "$mutants"
}

soak_parquet() {
	step "parquet: $parquets random files, read by pyarrow and DuckDB" suite parquet tests/e2e/test_parquet.py --parquets="$parquets" -rP
}

# 300 MB of Spark from PyPI; a cluster of one master and two workers on this machine.
soak_spark() {
	step "spark: a cluster reads the events of $sparks ranks" suite spark tests/e2e/soak_spark.py --sparks="$sparks" -rP
}

soak_rounds() {
	for round in $(seq "$rounds"); do
		step "end to end: round $round of $rounds" suite "e2e-$round" tests/e2e
	done
}

soak() {
	trap 'finish $?' EXIT
	date -u +'%Y-%m-%d %H:%M:%S UTC'
	uname -srm
	git -c safe.directory='*' describe --always --dirty 2>/dev/null || true
	step "packages" tools/install-packages.sh build test pip engines
	step "release: build and stage in build/dist" make --no-print-directory all
	for part in "$@"; do
		"soak_$part"
	done
}

parts="load same matrix kills processes events forks gpus ooms pairs culprits asked judge allocator npu-pool networks keepers page fleet parquet spark fuzz clients operators dryrun wheels mindspore sdist hooks torch mutants rounds"
case " $parts " in
*" ${1-} "*) ;;
*)
	[ $# -eq 0 ] || {
		echo "soak.sh: no part $1; there are: $parts" >&2
		exit 2
	}
	;;
esac

mkdir -p build
rm -rf "$results"
mkdir -p "$results"
# shellcheck disable=SC2086  # a list of words
soak ${1-$parts} 2>&1 | tee "build/soak${1:+-$1}.log"
