/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of memory of the host. */
#include "base/shown.h"
#include "findings/findings.h"
#include "findings/say.h"

#include <string.h>

void host_growth_sentence(const struct findings *found, const struct finding_host_growth *growth,
			  struct strbuf *out)
{
	bool by_step = growth->bytes_per_step > 0;

	(void)found;
	strbuf_add_str(out, "RSS of ");
	if (growth->own) {
		strbuf_add_str(out, "this process");
	} else if (growth->processes == 1) {
		strbuf_add_shown(out, growth->name, strlen(growth->name));
	} else {
		strbuf_addf(out, "%llu processes ", (unsigned long long)growth->processes);
		strbuf_add_shown(out, growth->name, strlen(growth->name));
	}
	strbuf_addf(out, " (%s %s) grows: +", growth->processes == 1 ? "pid" : "pids",
		    growth->pids);
	say_size(out, by_step ? growth->bytes_per_step : growth->bytes_per_second);
	strbuf_addf(out, " per %s%s, ", by_step ? "step" : "second",
		    growth->processes == 1 ? "" : " together");
	strbuf_add_size(out, growth->bytes);
	strbuf_add_str(out, " in ");
	if (by_step)
		say_count(out, growth->steps, "step");
	else
		say_seconds(out, growth->seconds);
	if (growth->explained >= 0.01)
		strbuf_addf(out, "; recorded blocks of the CPU account for %.0f %% of it",
			    100 * growth->explained);
	strbuf_add_char(out, '.');
	/* PyTorch gives its workers this name. */
	if (!growth->own && strcmp(growth->name, "pt_data_worker") == 0)
		strbuf_add_str(
			out,
			" These are workers of a DataLoader: look at the lists, dicts and caches "
			"that its Dataset fills.");
}

void host_kill_sentence(const struct findings *found, const struct finding_host_kill *kill,
			struct strbuf *out)
{
	(void)found;
	if (kill->own)
		strbuf_add_str(out, "Killed: ");
	else if (kill->kills == 1)
		strbuf_add_str(out, "The kernel killed a process of this container: ");
	else
		strbuf_addf(out, "The kernel killed %llu processes of this container: ",
			    (unsigned long long)kill->kills);
	if (kill->limit_bytes != UINT64_MAX) {
		strbuf_add_str(out, "the container's limit of ");
		strbuf_add_size(out, kill->limit_bytes);
		strbuf_add_str(out, " was reached");
	} else {
		strbuf_add_str(out, "memory of the machine ran out");
	}
	strbuf_add_str(out, "; RSS of this process");
	strbuf_addf(out, "%s was at most ",
		    kill->processes > 1 || kill->ended[0] != '\0' ? " and those that it started"
								  : "");
	strbuf_add_size(out, kill->resident_bytes);
	if (kill->ended[0] != '\0') {
		strbuf_add_str(out, ". Ended then: ");
		strbuf_add_shown(out, kill->ended, strlen(kill->ended));
	}
	strbuf_add_char(out, '.');
}

static void process_line(const struct finding_host_process *process, struct strbuf *out)
{
	strbuf_add_str(out, "  ");
	if (process->own)
		strbuf_add_str(out, "this process");
	else
		strbuf_add_shown(out, process->name, strlen(process->name));
	strbuf_addf(out, " (pid %llu): at most ", (unsigned long long)process->pid);
	strbuf_add_size(out, process->peak_bytes);
	strbuf_add_str(out, process->ended ? ", " : ", at the end ");
	strbuf_add_size(out, process->end_bytes);
	strbuf_add_str(out, process->ended ? " before it ended" : "");
	if (process->share_bytes != UINT64_MAX) {
		strbuf_add_str(out, ", its share of shared pages counted ");
		strbuf_add_size(out, process->share_bytes);
	}
	if (process->pinned_peak_bytes != 0) {
		strbuf_add_str(out, "; pinned at most ");
		strbuf_add_size(out, process->pinned_peak_bytes);
	}
	strbuf_add_char(out, '\n');
}

void hosts_text(const struct findings *found, uint32_t lines, struct strbuf *out)
{
	size_t count = FINDINGS_COUNT(found, host_process), i;
	const struct finding_host_memory *all = FINDINGS(found, host_memory);

	for (i = 0; i < FINDINGS_COUNT(found, host_kill); i++) {
		host_kill_sentence(found, &FINDINGS(found, host_kill)[i], out);
		strbuf_add_char(out, '\n');
	}
	for (i = 0; i < FINDINGS_COUNT(found, host_growth); i++) {
		host_growth_sentence(found, &FINDINGS(found, host_growth)[i], out);
		strbuf_add_char(out, '\n');
	}
	/* One process alone says little; what it pinned is among the pools. */
	if (count < 2)
		return;
	strbuf_addf(out,
		    "Host memory of %zu processes, resident, shared pages counted in each: "
		    "together at most ",
		    count);
	strbuf_add_size(out, all->peak_bytes);
	if (all->limit_bytes != UINT64_MAX) {
		strbuf_add_str(out, "; the container may have ");
		strbuf_add_size(out, all->limit_bytes);
	}
	strbuf_add_char(out, '\n');
	for (i = 0; i < count && i < lines; i++)
		process_line(&FINDINGS(found, host_process)[i], out);
	if (count + all->left_out > i) {
		strbuf_add_str(out, "  and ");
		strbuf_add_count(out, count + all->left_out - i, "more process", "more processes");
		strbuf_add_char(out, '\n');
	}
}
