/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists for people, word for word, from findings that no analysis has to come to first: inefficient memory, memory of the host, memory
 * of calls, and what other settings would have done.
 */
#include "unit.h"

#include "base/vendors.h"
#include "findings/findings.h"

#define MIB (UINT64_C(1) << 20)

static void assert_text(struct strbuf *text, const char *expected)
{
	assert_string_equal(strbuf_str(text), expected);
	strbuf_fini(text);
	*text = (struct strbuf){0};
}

/* ---- inefficient memory ---- */

static void add_site(struct findings *found, const char *name, uint64_t saved, uint64_t early,
		     uint64_t late, uint64_t idle)
{
	struct finding_waste *waste = FINDINGS(found, waste);
	struct finding_waste_site *site = FINDINGS_ADD_TO(found, waste_site, &waste->places);

	site->text = name;
	site->saved_bytes = saved;
	site->early_blocks = early;
	site->late_blocks = late;
	site->idle_blocks = idle;
}

static void add_steps(struct findings *found, uint64_t first, uint64_t last, uint64_t saved)
{
	struct finding_waste *waste = FINDINGS(found, waste);
	struct finding_waste_steps *steps = FINDINGS_ADD_TO(found, waste_steps, &waste->steps);

	steps->first = first;
	steps->last = last;
	steps->peak_bytes = 10 * MIB;
	steps->saved_bytes = saved;
}

static struct findings with_waste(uint64_t saved)
{
	struct findings found = {.unused_asked = true, .unused_seen = true};
	struct finding_waste *waste = FINDINGS_ADD(&found, waste);

	waste->event_type = POOL_pta;
	waste->peak_bytes = 100 * MIB;
	waste->saved_bytes = saved;
	return found;
}

static void a_screen_has_half_of_its_lines_for_call_sites(void **state)
{
	struct findings found = with_waste(25 * MIB);
	struct strbuf text = {0};

	(void)state;
	add_site(&found, "a.py:1", 3 * MIB, 1, 0, 0);
	add_site(&found, "a.py:2", 2 * MIB, 0, 2, 0);
	add_site(&found, "a.py:3", MIB, 1, 2, 3);
	add_site(&found, "a.py:4", 0, 0, 0, 1);
	FINDINGS(&found, waste_site)[1].several = true;
	wastes_text(&found, NULL, 4, 0, &text);
	assert_text(
		&text,
		"Inefficient memory: PTA on device 0 peaks at 100 MiB; with all of it mended at 75.0 MiB, 25 % less\n"
		"  3.0 MiB less: a.py:1\n    1 block allocated too early: allocate at the first use\n"
		"  at least 2.0 MiB less: a.py:2\n    2 blocks freed too late: free after the last use\n"
		"  ... 1 more call site; report.txt has all of them\n"
		"  1 call site would not lower the peak alone: report.txt has it\n");
	FINDINGS(&found, waste_site)[3].rest = true;
	FINDINGS(&found, waste_site)[3].call_sites = 7;
	wastes_text(&found, NULL, 2, 0, &text);
	assert_text(
		&text,
		"Inefficient memory: PTA on device 0 peaks at 100 MiB; with all of it mended at 75.0 MiB, 25 % less\n"
		"  3.0 MiB less: a.py:1\n    1 block allocated too early: allocate at the first use\n"
		"  ... 2 more call sites; report.txt has all of them\n"
		"  7 call sites would not lower the peak alone: report.txt has them\n");
	wastes_text(&found, NULL, 6, 0, &text);
	assert_non_null(strstr(
		strbuf_str(&text),
		"  1.0 MiB less: a.py:3\n    1 block allocated too early, 2 freed too late, 3 idle for long between two uses\n  7 call sites would"));
	strbuf_fini(&text);
	findings_fini(&found);
}

static void a_report_has_all_call_sites_and_steps(void **state)
{
	struct findings found = with_waste(0);
	struct strbuf text = {0};

	(void)state;
	FINDINGS(&found, waste)->device = DEVICE_HOST;
	add_site(&found, "a.py:4", 0, 0, 0, 1);
	add_steps(&found, 0, 0, MIB);
	add_steps(&found, 1, 1, 0);
	add_steps(&found, 0, 2, MIB);
	add_steps(&found, 3, 3, MIB);
	add_steps(&found, 4, 7, MIB);
	wastes_text(&found, NULL, UINT32_MAX, 0, &text);
	assert_text(
		&text,
		"Inefficient memory: PTA on cpu peaks at 100 MiB, and would if all of it were mended\n"
		"  peak of the time before step 1: 10.0 MiB, all mended 9.0 MiB\n"
		"  peak of steps 1 to 2: 10.0 MiB, all mended 9.0 MiB\n"
		"  peak of step 3: 10.0 MiB, all mended 9.0 MiB\n"
		"  peak of steps 4 to 7: 10.0 MiB, all mended 9.0 MiB\n"
		"  no less: a.py:4\n    1 block idle for long between two uses: free or offload meanwhile\n");
	findings_fini(&found);
}

static void without_waste_one_line_says_why(void **state)
{
	struct findings found = {0};
	struct strbuf text = {0};

	(void)state;
	wastes_text(&found, NULL, 9, 0, &text);
	assert_text(&text, "");
	found.unused_asked = true;
	wastes_text(&found, NULL, 9, 0, &text);
	assert_text(
		&text,
		"Inefficient memory: cannot be judged, no operator told which memory it uses.\n");
	found.unused_seen = true;
	wastes_text(&found, NULL, 9, 0, &text);
	assert_text(&text, "Inefficient memory: none found.\n");
}

/* ---- memory of the host ---- */

static void growth_of_the_host_is_told_by_step_or_by_second(void **state)
{
	static const struct {
		struct finding_host_growth growth;
		const char *says;
	} all[] = {
		{{.own = true,
		  .name = "",
		  .processes = 1,
		  .pids = "7",
		  .bytes = 9 * MIB,
		  .bytes_per_step = MIB,
		  .bytes_per_second = 5,
		  .steps = 9,
		  .explained = 0.0099},
		 "RSS of this process (pid 7) grows: +1.0 MiB per step, 9.0 MiB in 9 steps."},
		{{.name = "worker",
		  .processes = 1,
		  .pids = "8",
		  .bytes = 9 * MIB,
		  .bytes_per_second = 2048,
		  .seconds = 12,
		  .explained = 0.01},
		 "RSS of 1 worker process (pid 8) grows: +2.0 KiB per second, 9.0 MiB in 12.0 s; recorded blocks of the CPU account for 1 % of it."},
		{{.name = "pt_data_worker",
		  .processes = 2,
		  .pids = "8, 9",
		  .bytes = 9 * MIB,
		  .bytes_per_step = MIB,
		  .steps = 1},
		 "RSS of 2 DataLoader workers (pids 8, 9) grows: +1.0 MiB per step together, 9.0 MiB in 1 step. Look at the lists, dicts and caches that the "
		 "Dataset fills."},
		{{.name = "pt_data_worker",
		  .processes = 1,
		  .pids = "8",
		  .bytes = 9 * MIB,
		  .bytes_per_step = MIB,
		  .steps = 9,
		  .growing = "list `rows` of class Store (a.py:1), 9 items, +1.0 per step",
		  .cure = "clear it"},
		 "RSS of 1 DataLoader worker (pid 8) grows: +1.0 MiB per step, 9.0 MiB in 9 steps. Growing: list `rows` of class Store (a.py:1), 9 items, "
		 "+1.0 per step. Cure: clear it."},
	};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		host_growth_sentence(NULL, &all[i].growth, &text);
		assert_text(&text, all[i].says);
	}
}

static void containers_are_told_by_whose_they_are(void **state)
{
	static const struct {
		struct finding_host_container container;
		const char *says;
	} all[] = {
		{{.type = "list",
		  .name = "rows",
		  .owner = "class Store (a.py:1)",
		  .filled = "a.py:9",
		  .items = 3120,
		  .items_per_step = 20.3,
		  .items_per_second = 7},
		 "list `rows` of class Store (a.py:1), 3,120 items, +20 per step, filled at a.py:9"},
		{{.type = "list",
		  .name = "Store.rows",
		  .owner = "class attribute of Store in a.py",
		  .filled = "",
		  .items = 1,
		  .items_per_second = 0.25},
		 "list `Store.rows` (class attribute of Store in a.py), 1 item, +0.2 per second"},
		{{.type = "cache",
		  .name = "",
		  .owner = "functools.lru_cache of f() defined at a.py:3",
		  .filled = "",
		  .items = 12,
		  .items_per_second = 9.96},
		 "functools.lru_cache of f() defined at a.py:3, 12 items, +10 per second"},
	};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		host_container_sentence(NULL, &all[i].container, &text);
		assert_text(&text, all[i].says);
	}
}

static void kills_name_the_limit_and_who_ended(void **state)
{
	static const struct {
		struct finding_host_kill kill;
		const char *says;
	} all[] = {
		{{.own = true,
		  .kills = 1,
		  .limit_bytes = 64 * MIB,
		  .ended = "",
		  .processes = 1,
		  .resident_bytes = 60 * MIB},
		 "Killed: the container's limit of 64.0 MiB was reached; RSS of this process was at most 60.0 MiB."},
		{{.kills = 1,
		  .limit_bytes = UINT64_MAX,
		  .ended = "",
		  .processes = 2,
		  .resident_bytes = 60 * MIB},
		 "The kernel killed a process of this container: memory of the machine ran out; RSS of this process and those that it started was at most 60.0 MiB."},
		{{.kills = 3,
		  .limit_bytes = UINT64_MAX,
		  .ended = "worker",
		  .processes = 1,
		  .resident_bytes = 60 * MIB},
		 "The kernel killed 3 processes of this container: memory of the machine ran out; RSS of this process and those that it started was at most 60.0 "
		 "MiB. Ended then: worker."},
	};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		host_kill_sentence(NULL, &all[i].kill, &text);
		assert_text(&text, all[i].says);
	}
}

static void add_process(struct findings *found, uint64_t pid, uint64_t share, uint64_t pinned)
{
	struct finding_host_process *process = FINDINGS_ADD(found, host_process);

	process->pid = pid;
	process->own = pid == 1;
	process->ended = pid == 2;
	process->name = pid == 1 ? "" : "worker";
	process->peak_bytes = 2 * MIB;
	process->end_bytes = MIB;
	process->share_bytes = share;
	process->pinned_peak_bytes = pinned;
}

static void processes_of_the_host_are_listed_from_two_on(void **state)
{
	struct findings found = {0};
	struct strbuf text = {0};

	(void)state;
	*FINDINGS_ADD(&found, host_memory) =
		(struct finding_host_memory){.peak_bytes = 4 * MIB, .limit_bytes = UINT64_MAX};
	add_process(&found, 1, UINT64_MAX, 0);
	hosts_text(&found, 9, &text);
	assert_text(&text, "");
	add_process(&found, 2, 512, 4096);
	hosts_text(&found, 2, &text);
	assert_text(
		&text,
		"Host memory of 2 processes, resident, shared pages counted in each: together at most 4.0 MiB\n"
		"  this process (pid 1): at most 2.0 MiB, at the end 1.0 MiB\n"
		"  worker (pid 2): at most 2.0 MiB, 1.0 MiB before it ended, its share of shared pages counted 512 B; pinned at most 4.0 KiB\n");
	FINDINGS(&found, host_memory)->limit_bytes = 8 * MIB;
	FINDINGS(&found, host_memory)->left_out = 3;
	hosts_text(&found, 1, &text);
	assert_text(
		&text,
		"Host memory of 2 processes, resident, shared pages counted in each: together at most 4.0 MiB; the container may have 8.0 MiB\n"
		"  this process (pid 1): at most 2.0 MiB, at the end 1.0 MiB\n"
		"  and 4 more processes\n");
	findings_fini(&found);
}

static void a_short_rise_of_workers_is_told(void **state)
{
	struct findings found = {0};
	struct strbuf text = {0};
	uint64_t i;

	(void)state;
	for (i = 1; i <= 4; i++) {
		add_process(&found, i, UINT64_MAX, 0);
		FINDINGS(&found, host_process)[i - 1].first_bytes = 100 * MIB;
		FINDINGS(&found, host_process)[i - 1].peak_bytes = (i == 4 ? 611 : 612 + i) * MIB;
	}
	host_rise_brief(&found, &text);
	assert_text(
		&text,
		"Host memory: RSS of worker (pid 3) rose from 100 MiB to 615 MiB, and 1 more process like it. Run longer to tell whether it grows "
		"without end.");
	FINDINGS(&found, host_process)[1].peak_bytes = 101 * MIB;
	host_rise_brief(&found, &text);
	assert_text(
		&text,
		"Host memory: RSS of worker (pid 3) rose from 100 MiB to 615 MiB. Run longer to tell whether it grows without end.");
	FINDINGS(&found, host_process)[2].own = true;
	host_rise_brief(&found, &text);
	assert_text(&text, "");
	FINDINGS(&found, host_process)[2].own = false;
	(void)FINDINGS_ADD(&found, host_growth);
	host_rise_brief(&found, &text);
	assert_text(&text, "");
	findings_fini(&found);
}

/* ---- calls ---- */

static void add_call(struct findings *found, const char *name, bool kernel)
{
	struct finding_calls *calls = FINDINGS(found, calls);
	struct finding_call *call = FINDINGS_ADD_TO(found, call, &calls->entries);

	call->name = name;
	call->kernel = kernel;
	call->event_type = POOL_pta;
	call->calls = 12;
	call->left_bytes = 3 * MIB;
	call->largest_bytes = MIB;
	call->end_bytes = 2 * MIB;
}

static void calls_have_a_table_for_operators_and_one_for_kernels(void **state)
{
	struct findings found = {0};
	struct strbuf text = {0};

	(void)state;
	calls_text(&found, 9, &text);
	assert_text(&text, "");
	(void)FINDINGS_ADD(&found, calls);
	calls_text(&found, 9, &text);
	assert_non_null(strstr(strbuf_str(&text), "No operator and no kernel is in this run."));
	strbuf_fini(&text);
	FINDINGS(&found, calls)->operators = true;
	FINDINGS(&found, calls)->steps = 2;
	add_call(&found, "mul", false);
	add_call(&found, "gelu", true);
	add_call(&found, "add", false);
	add_call(&found, "sub", false);
	FINDINGS(&found, call)[0].bytes_per_step = -(double)MIB;
	FINDINGS(&found, call)[2].bytes_per_step = MIB;
	FINDINGS(&found, call)[2].outside = true;
	FINDINGS(&found, call)[2].event_type = POOL_UNKNOWN;
	calls_text(&found, 2, &text);
	assert_text(
		&text,
		"Memory that operators left allocated when they ended, the fastest growing first (2 steps):\n"
		"    calls       left    largest    per step at the end  device memory        operator\n"
		"       12    3.0 MiB    1.0 MiB    -1.0 MiB    2.0 MiB  0      PTA           mul\n"
		"        -    3.0 MiB    1.0 MiB    +1.0 MiB    2.0 MiB  0      -             add\n"
		"  and 1 more line; --top=N or --all shows them\n"
		"Kernels have no names in this run; record with --level=op,kernel to see them too.\n");
	FINDINGS(&found, calls)->operators = false;
	FINDINGS(&found, calls)->kernels = true;
	FINDINGS(&found, calls)->steps = 1;
	calls_text(&found, 1, &text);
	assert_text(&text,
		    "Memory that kernels left allocated when the next one was launched:\n"
		    "    calls       left    largest at the end  device memory        kernel\n"
		    "       12    3.0 MiB    1.0 MiB    2.0 MiB  0      PTA           gelu\n");
	findings_fini(&found);
}

/* ---- other settings ---- */

static void add_what_if(struct findings *found, uint8_t vendor, bool refused, bool helps,
			const char *set)
{
	struct finding_what_if *what_if = FINDINGS_ADD(found, what_if);

	what_if->vendor = vendor;
	what_if->refused = refused;
	what_if->helps = helps;
	what_if->set = set;
	what_if->reserved_bytes = 3 * MIB;
	what_if->recorded_bytes = 4 * MIB;
}

static void settings_that_help_come_with_the_line_that_sets_them(void **state)
{
	struct findings found = {0};
	struct strbuf text = {0};

	(void)state;
	add_what_if(&found, VENDOR_CUDA, false, true, "a:1");
	add_what_if(&found, VENDOR_ASCEND, true, true, "");
	add_what_if(&found, VENDOR_CUDA, true, false, "a:1");
	add_what_if(&found, VENDOR_CUDA, false, false, "");
	what_if_lines(&found, &text);
	assert_text(
		&text,
		"With a:1 the pool would hold at most 3.0 MiB instead of 4.0 MiB.\n  export PYTORCH_CUDA_ALLOC_CONF=a:1\n"
		"With default settings the pool would hold 3.0 MiB here, and this request fits.\n  unset PYTORCH_NPU_ALLOC_CONF\n"
		"No allocator setting that was tried on the record serves this request.\n"
		"No allocator setting that was tried on the record saves 5 % of what the pool reserves.\n");
	findings_fini(&found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_screen_has_half_of_its_lines_for_call_sites),
		cmocka_unit_test(a_report_has_all_call_sites_and_steps),
		cmocka_unit_test(without_waste_one_line_says_why),
		cmocka_unit_test(growth_of_the_host_is_told_by_step_or_by_second),
		cmocka_unit_test(containers_are_told_by_whose_they_are),
		cmocka_unit_test(kills_name_the_limit_and_who_ended),
		cmocka_unit_test(processes_of_the_host_are_listed_from_two_on),
		cmocka_unit_test(a_short_rise_of_workers_is_told),
		cmocka_unit_test(calls_have_a_table_for_operators_and_one_for_kernels),
		cmocka_unit_test(settings_that_help_come_with_the_line_that_sets_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
