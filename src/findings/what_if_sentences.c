/* SPDX-License-Identifier: Apache-2.0 */
/* What another setting of PyTorch's allocator would have done. */
#include "findings/findings.h"

static void add_setting(const struct finding_what_if *what_if, struct strbuf *out)
{
	strbuf_addf(out, "With %s the pool would hold ",
		    what_if->set[0] == '\0' ? "default settings" : what_if->set);
}

void what_if_sentence(const struct findings *found, const struct finding_what_if *what_if,
		      struct strbuf *out)
{
	(void)found;
	if (!what_if->helps) {
		strbuf_add_str(
			out,
			what_if->refused
				? "No allocator setting that was tried on the record serves this request."
				: "No allocator setting that was tried on the record saves 5 % of what the pool reserves.");
		return;
	}
	add_setting(what_if, out);
	if (what_if->refused) {
		strbuf_add_size(out, what_if->reserved_bytes);
		strbuf_add_str(out, " here, and this request fits.");
		return;
	}
	strbuf_add_str(out, "at most ");
	strbuf_add_size(out, what_if->reserved_bytes);
	strbuf_add_str(out, " instead of ");
	strbuf_add_size(out, what_if->recorded_bytes);
	strbuf_add_char(out, '.');
}

void what_if_lines(const struct findings *found, struct strbuf *out)
{
	FINDINGS_EACH (found, what_if, what_if) {
		const char *name = what_if->vendor == VENDOR_ASCEND ? "PYTORCH_NPU_ALLOC_CONF"
								    : "PYTORCH_CUDA_ALLOC_CONF";

		what_if_sentence(found, what_if, out);
		strbuf_add_char(out, '\n');
		if (what_if->helps && what_if->set[0] == '\0')
			strbuf_addf(out, "  unset %s\n", name);
		else if (what_if->helps)
			strbuf_addf(out, "  export %s=%s\n", name, what_if->set);
	}
}
