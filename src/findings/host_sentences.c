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
