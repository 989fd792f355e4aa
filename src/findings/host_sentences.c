/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of memory of the host. */
#include "base/shown.h"
#include "findings/findings.h"
#include "findings/say.h"

#include <string.h>

/* PyTorch gives its workers this name. */
static bool is_loader(const struct finding_host_growth *growth)
{
	return !growth->own && strcmp(growth->name, "pt_data_worker") == 0;
}

/* "RSS of 2 DataLoader workers" */
static void growth_name(const struct finding_host_growth *growth, struct strbuf *out)
{
	strbuf_add_str(out, "RSS of ");
	if (growth->own) {
		strbuf_add_str(out, "this process");
		return;
	}
	strbuf_add_u64(out, growth->processes);
	if (is_loader(growth)) {
		strbuf_add_str(out, " DataLoader worker");
	} else {
		strbuf_add_char(out, ' ');
		strbuf_add_shown(out, growth->name, strlen(growth->name));
		strbuf_add_str(out, " process");
	}
	if (growth->processes != 1)
		strbuf_add_str(out, is_loader(growth) ? "s" : "es");
}

/* "+1.5 MiB per step together, 717 MiB in 471 steps" */
static void growth_rate(const struct finding_host_growth *growth, struct strbuf *out)
{
	bool by_step = growth->bytes_per_step > 0;

	strbuf_add_char(out, '+');
	say_size(out, by_step ? growth->bytes_per_step : growth->bytes_per_second);
	strbuf_addf(out, " per %s%s, ", by_step ? "step" : "second",
		    growth->processes == 1 ? "" : " together");
	strbuf_add_size(out, growth->bytes);
	strbuf_add_str(out, " in ");
	if (by_step)
		say_count(out, growth->steps, "step");
	else
		say_seconds(out, growth->seconds);
}

static const char *pid_word(const struct finding_host_growth *growth)
{
	return growth->processes == 1 ? "pid" : "pids";
}

void host_container_sentence(const struct findings *found,
			     const struct finding_host_container *container, struct strbuf *out)
{
	bool by_step = container->items_per_step > 0;
	double rate = by_step ? container->items_per_step : container->items_per_second;

	(void)found;
	/* Whose attribute it is, else where its name begins. The cache of a function has none. */
	if (container->name[0] == '\0')
		strbuf_add_str(out, container->owner);
	else if (strncmp(container->owner, "class ", 6) == 0 &&
		 strncmp(container->owner, "class attribute ", 16) != 0)
		strbuf_addf(out, "%s `%s` of %s", container->type, container->name,
			    container->owner);
	else
		strbuf_addf(out, "%s `%s` (%s)", container->type, container->name,
			    container->owner);
	strbuf_add_str(out, ", ");
	say_count(out, container->items, "item");
	strbuf_addf(out, rate < 9.95 ? ", +%.1f per %s" : ", +%.0f per %s", rate,
		    by_step ? "step" : "second");
	if (container->filled[0] != '\0')
		strbuf_addf(out, ", filled at %s", container->filled);
}

static bool is_known(const char *text)
{
	return text != NULL && text[0] != '\0';
}

void host_growth_brief(const struct finding_host_growth *growth, struct strbuf *out)
{
	growth_name(growth, out);
	strbuf_add_char(out, ' ');
	growth_rate(growth, out);
	if (!growth->own)
		strbuf_addf(out, " (%s %s)", pid_word(growth), growth->pids);
	strbuf_add_char(out, '.');
	if (growth->explained >= 0.01)
		strbuf_addf(out, " Recorded blocks of the CPU account for %.0f %% of it.",
			    100 * growth->explained);
	if (is_known(growth->growing)) {
		strbuf_addf(out, "\n  growing: %s", growth->growing);
		if (is_known(growth->cure))
			strbuf_addf(out, "\n  cure: %s", growth->cure);
	} else if (is_loader(growth))
		strbuf_add_str(out, " Look at the lists, dicts and caches that the Dataset fills.");
	else if (growth->explained < 0.5)
		strbuf_add_str(out, " Look for growing Python lists and dicts, NumPy arrays and "
				    "memory of C libraries.");
}

/* A worker that rises by so much has more than its code. */
#define RISE_LEAST (UINT64_C(512) << 20)

size_t host_risen(const struct findings *found, const struct finding_host_process **out_most)
{
	size_t rose = 0;

	*out_most = NULL;
	FINDINGS_EACH (found, host_process, p) {
		if (p->own || p->peak_bytes < p->first_bytes + RISE_LEAST)
			continue;
		rose++;
		if (*out_most == NULL || p->peak_bytes > (*out_most)->peak_bytes)
			*out_most = p;
	}
	return rose;
}

void host_rise_brief(const struct findings *found, struct strbuf *out)
{
	const struct finding_host_process *most;
	size_t rose = host_risen(found, &most);

	if (most == NULL || FINDINGS_COUNT(found, host_growth) > 0)
		return;
	strbuf_add_str(out, "Host memory: RSS of ");
	strbuf_add_shown(out, most->name, strlen(most->name));
	strbuf_addf(out, " (pid %llu) rose from ", (unsigned long long)most->pid);
	strbuf_add_size(out, most->first_bytes);
	strbuf_add_str(out, " to ");
	strbuf_add_size(out, most->peak_bytes);
	if (rose > 1)
		strbuf_addf(out, ", and %zu more process%s like it", rose - 1,
			    rose == 2 ? "" : "es");
	strbuf_add_str(out, ". Run longer to tell whether it grows without end.");
}

void host_growth_sentence(const struct findings *found, const struct finding_host_growth *growth,
			  struct strbuf *out)
{
	(void)found;
	growth_name(growth, out);
	strbuf_addf(out, " (%s %s) grows: ", pid_word(growth), growth->pids);
	growth_rate(growth, out);
	if (growth->explained >= 0.01)
		strbuf_addf(out, "; recorded blocks of the CPU account for %.0f %% of it",
			    100 * growth->explained);
	strbuf_add_char(out, '.');
	if (is_known(growth->growing)) {
		strbuf_addf(out, " Growing: %s.", growth->growing);
		if (is_known(growth->cure))
			strbuf_addf(out, " Cure: %s.", growth->cure);
	} else if (is_loader(growth)) {
		strbuf_add_str(out, " Look at the lists, dicts and caches that the Dataset fills.");
	}
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
