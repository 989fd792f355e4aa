/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope dryrun [--device=npu:64G] [--steps=3] -- python train.py: what the first steps of a PyTorch program need of an NPU, on a machine
 * without one. The unmodified program runs with the real torch_npu over the simulated NPU, which computes only what is small (dry_run.h),
 * once for each device and, if it does not fit into one, once more without a limit, so that what it needs is known.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/cli.h"
#include "cli/dry_answer.h"
#include "cli/dry_run.h"
#include "cli/preflight.h"
#include "cli/tree.h"

#define DEVICE_DEFAULT "npu:64G"
#define PROBE_MS       30000
#define DEVICE_MIN     (UINT64_C(1) << 20)

/* ---- devices ---- */

/* "npu:64G": a size with K, M, G or T. */
static bool read_device(const char *text, struct dry_device *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t bytes;
	char *end;

	if (strncmp(text, "npu:", 4) != 0 || !isdigit((unsigned char)text[4]) ||
	    strlen(text) >= sizeof(out->name))
		return false;
	bytes = strtoull(text + 4, &end, 10);
	unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
	if (*end != '\0') {
		if (unit == NULL || end[1] != '\0' || bytes > DRY_NO_LIMIT)
			return false;
		bytes <<= 10 * (unit - units + 1);
	}
	if (bytes < DEVICE_MIN || bytes > DRY_NO_LIMIT)
		return false;
	(void)snprintf(out->name, sizeof(out->name), "%s", text);
	out->bytes = bytes;
	return true;
}

/* One option may name several, split by commas. Returns how many; 0 after a complaint. */
static size_t read_devices(const struct options *options, struct dry_device *out, size_t room)
{
	size_t count = 0;
	uint32_t i;

	if (options->dry_device.count == 0)
		return read_device(DEVICE_DEFAULT, &out[0]) ? 1 : 0;
	for (i = 0; i < options->dry_device.count; i++) {
		char *list = strdup(options->dry_device.value[i]), *rest = NULL, *word;

		for (word = list == NULL ? NULL : strtok_r(list, ",", &rest); word != NULL;
		     word = strtok_r(NULL, ",", &rest)) {
			if (count == room || !read_device(word, &out[count])) {
				if (count == room)
					cli_say("--device: at most %zu devices", room);
				else
					cli_say("--device: '%s' is not a device of a dry run; allowed: npu:SIZE with K, M, G or T, from 1M to 1T, such as npu:64G",
						word);
				free(list);
				return 0;
			}
			count++;
		}
		free(list);
	}
	return count;
}

/* ---- refusals before the start ---- */

static bool is_python(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash == NULL ? path : slash + 1, "python", 6) == 0;
}

/* The release of a package as the probe below prints it, "" if it is missing. */
static void read_release(const char *output, const char *package, char *out, size_t bytes)
{
	const char *at = output;
	size_t length = strlen(package);

	out[0] = '\0';
	for (; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
		if (strncmp(at, package, length) == 0 && at[length] == '=')
			(void)snprintf(out, bytes, "%.*s", (int)strcspn(at + length + 1, "\n"),
				       at + length + 1);
	}
}

/* Asks the interpreter for its packages, without importing them. True after a complaint. */
static bool lacks_torch(const char *python)
{
	static const char probe[] = "import importlib.util as u, importlib.metadata as m\n"
				    "for n in ('torch', 'torch_npu'):\n"
				    "    if u.find_spec(n):\n"
				    "        try: v = m.version(n)\n"
				    "        except m.PackageNotFoundError: v = '?'\n"
				    "        print(n + '=' + v)\n";
	const char *argv[] = {python, "-c", probe, NULL};
	const struct child_variable changes[] = {{"MSMEMSCOPE_DISABLE", "1"}, {NULL, NULL}};
	struct strbuf output = {0};
	char torch[64], npu[64];
	bool lacks = false;

	/* An interpreter that cannot say it says more when it runs. */
	if (child_run(argv, changes, PROBE_MS, &output) == 0) {
		read_release(strbuf_str(&output), "torch", torch, sizeof(torch));
		read_release(strbuf_str(&output), "torch_npu", npu, sizeof(npu));
		lacks = torch[0] == '\0' || npu[0] == '\0';
		if (torch[0] == '\0')
			cli_say("%s has no torch; dryrun runs PyTorch programs", python);
		else if (npu[0] == '\0')
			cli_say("%s has torch %s but not torch_npu; a dry run for an NPU needs the torch_npu of the same release (pip install torch_npu==%.*s); there is no dry run for CUDA or the CPU",
				python, torch, (int)strcspn(torch, "+"), torch);
	}
	strbuf_fini(&output);
	return lacks;
}

static bool is_refused(const struct options *options)
{
	const char *ranks = getenv("WORLD_SIZE");
	char home[PATH_MAX], path[PATH_MAX];
	struct mscope_error err = {0};
	struct strbuf library = {0};
	bool refused = true;

	if (preflight_resolve(options->argv[1], path, sizeof(path), &err) < 0 ||
	    tree_prefix(home, sizeof(home), &err) < 0) {
		cli_say("%s", err.message);
		return true;
	}
	strbuf_addf(&library, "%s/simnpu/lib64/libopapi.so", home);
	if (access(strbuf_str(&library), R_OK) < 0)
		cli_say("this installation has no simulated NPU: %s is missing",
			strbuf_str(&library));
	else if (ranks != NULL && atoi(ranks) > 1)
		cli_say("WORLD_SIZE=%s: a dry run has one rank, because the buffers of collectives are not known; run one rank",
			ranks);
	else
		refused = is_python(path) && lacks_torch(path);
	strbuf_fini(&library);
	return refused;
}

/* ---- the answer ---- */

/* Why the runs answer nothing. True after a complaint. */
static bool is_unanswered(const struct dry_result *run)
{
	if (run->processes > 1) {
		cli_say("%u processes used an NPU: a dry run has one rank, because the buffers of collectives are not known; run one rank",
			run->processes);
		return true;
	}
	/* A device may be too small for the first tensor. */
	if (run->processes == 1 || dry_ran_out(run))
		return false;
	if (run->died_at != NULL)
		cli_say("the program failed at %s, before it used an NPU%s%s", run->died_at,
			run->because == NULL ? "" : ": ", run->because == NULL ? "" : run->because);
	else if (!dry_is_fine(run))
		cli_say("the program failed before it used an NPU");
	else
		cli_say("the program used no memory of an NPU; its tensors must be on the device \"npu\" (torch_npu)");
	return true;
}

static int print(const struct options *options, const struct dry_answer *answer)
{
	struct strbuf text = {0};

	if (options->json)
		dry_json(answer, &text);
	else
		dry_text(answer, &text);
	cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	if (!dry_fits(answer))
		return MSCOPE_EXIT_CONDITION;
	return dry_is_whole(answer->figures) ? MSCOPE_EXIT_OK : MSCOPE_EXIT_FAILED;
}

int cmd_dryrun(const struct options *options)
{
	struct dry_device devices[OPTION_TEXTS_MAX],
		no_limit = {.name = "npu:1T", .bytes = DRY_NO_LIMIT};
	struct dry_result runs[OPTION_TEXTS_MAX + 1] = {0};
	struct dry_answer answer = {.runs = runs, .figures = runs};
	struct mscope_error err = {0};
	size_t done = 0, i;
	int code = MSCOPE_EXIT_FAILED, r = 0;

	answer.count = read_devices(options, devices, OPTION_TEXTS_MAX);
	if (answer.count == 0)
		return MSCOPE_EXIT_USAGE;
	if (is_refused(options))
		return MSCOPE_EXIT_FAILED;
	while (r == 0 && done < answer.count) {
		r = dry_run(options, &devices[done], done == 0, &runs[done], &err);
		done++;
		if (r == 0 && is_unanswered(&runs[done - 1]))
			goto out;
	}
	/* Where there was most room, the pool gave back least. */
	for (i = 0; i < answer.count; i++) {
		if (!dry_ran_out(&runs[i]) && (dry_ran_out(answer.figures) ||
					       runs[i].device.bytes > answer.figures->device.bytes))
			answer.figures = &runs[i];
	}
	if (r == 0 && dry_ran_out(answer.figures)) {
		r = dry_run(options, &no_limit, false, &runs[done], &err);
		answer.figures = &runs[done++];
		if (r == 0 && is_unanswered(answer.figures))
			goto out;
	}
	if (r < 0)
		cli_say("%s", err.message);
	else
		code = print(options, &answer);
out:
	for (i = 0; i < done; i++)
		dry_fini(&runs[i]);
	return code;
}
