/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks between marks: in lines that the original has documented, and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "findings/findings.h"
#include "findings/say.h"
#include "findings/site.h"

void marks_fault(const struct findings *found, const struct finding_marked_device *device,
		 struct strbuf *out)
{
	const struct finding_marks *marks = FINDINGS(found, marks);
	uint64_t start = marks->start_index;

	if (device->judged)
		return;
	strbuf_add_str(out, "the mark \"");
	strbuf_add_shown(out, marks->mark, strlen(marks->mark));
	if (device->marks == 0) {
		strbuf_add_str(out, "\" never occurs");
		if (marks->others[0] != '\0')
			strbuf_addf(out, "; marks that do: %s", marks->others);
		return;
	}
	strbuf_add_str(out, "\" occurs ");
	strbuf_add_count(out, device->marks, "time", "times");
	strbuf_addf(out,
		    "; start index %" PRIu64 " needs the marks %" PRIu64 ", %" PRIu64
		    " and %" PRIu64 ", counted from 0",
		    start, start, start + 1, start + 2);
}

/* MiB with the fewest digits that say the same number, and at least one after the point, as the documented line has it. */
static void add_mib(struct strbuf *out, uint64_t bytes)
{
	double mib = (double)bytes / (1024.0 * 1024.0);
	char text[40];
	int digits;

	for (digits = 1; digits < 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, mib);
		if (strtod(text, NULL) == mib)
			break;
	}
	if (digits == 17 || strstr(text, "e+") != NULL)
		(void)snprintf(text, sizeof(text), "%.17g", mib);
	strbuf_add_str(out, text);
	if (strpbrk(text, ".e") == NULL)
		strbuf_add_str(out, ".0");
}

static void add_leaks(const struct findings *found, struct replay *replay,
		      const struct finding_marked_device *device, uint32_t lines,
		      struct strbuf *out)
{
	struct strbuf place = {0};
	char name[16];
	size_t i;

	device_text(device->device, name);
	strbuf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n", name);
	for (i = 0; i < device->leaks.count && i < lines; i++) {
		const struct finding_mark_leak *leak =
			&FINDINGS(found, mark_leak)[device->leaks.first + i];

		strbuf_addf(out, "Direct %s leak of ", leak->memory);
		add_mib(out, leak->size);
		strbuf_add_str(out, " Mb(s) at ");
		strbuf_add_hex(out, leak->address, 16);
		strbuf_addf(out, " in Index %" PRIu64 ".\n", leak->index);
		strbuf_reset(&place);
		if (site_line(replay, leak->stack, &place))
			strbuf_addf(out, "    %s\n", strbuf_str(&place));
	}
	if (i < device->leaks.count)
		strbuf_addf(out, "  and %zu more; --top=N or --all shows them\n",
			    device->leaks.count - i);
	strbuf_add_str(out, "====== SUMMARY: ");
	add_mib(out, device->leaked_bytes);
	strbuf_addf(out, " Mb(s) leaked in %zu allocation(s) ======\n", device->leaks.count);
	strbuf_fini(&place);
}

static void add_device(const struct findings *found, struct replay *replay,
		       const struct finding_marked_device *device, uint32_t lines,
		       struct strbuf *out)
{
	uint64_t start = FINDINGS(found, marks)->start_index;
	char name[16];

	device_text(device->device, name);
	if (!device->judged) {
		strbuf_addf(out, "Device %s was not judged: ", name);
		marks_fault(found, device, out);
		strbuf_add_str(out, ".\n");
		return;
	}
	if (device->leaks.count > 0)
		add_leaks(found, replay, device, lines, out);
	else
		strbuf_addf(out,
			    "No memory leaks on device %s: all that was allocated between the "
			    "marks %" PRIu64 " and %" PRIu64 " was freed before mark %" PRIu64
			    ".\n",
			    name, start, start + 1, start + 2);
	if (device->kept_by_pools_blocks > 0) {
		strbuf_add_size(out, device->kept_by_pools_bytes);
		strbuf_addf(out,
			    " of the driver on device %s were taken by a framework's pool and are "
			    "kept by it: its cache, no leak.\n",
			    name);
	}
}

void marks_text(const struct findings *found, struct replay *replay, uint32_t lines,
		struct strbuf *out)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, marked_device); i++)
		add_device(found, replay, &FINDINGS(found, marked_device)[i], lines, out);
	if (i == 0)
		strbuf_add_str(out, "No memory was allocated on these devices.\n");
}

void marks_json(const struct findings *found, uint32_t lines, struct json *json)
{
	finding_json(found, FINDING_marks, FINDINGS(found, marks), "marks", lines, json);
}
