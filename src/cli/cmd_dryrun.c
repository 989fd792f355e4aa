/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope dryrun [--device=npu:64G|h200] [--steps=3] -- python train.py: what the first steps of a PyTorch program need of an NPU or a card of
 * CUDA, on a machine without one. The unmodified program runs with the real torch_npu over the simulated NPU, which computes only what is small, or
 * with the real PyTorch over the simulated CUDA, which computes nothing (dry_run.h), once for each device and, if it does not fit into one, once
 * more without a limit, so that what it needs is known.
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
#define CARD_OF_A_SIZE "h100-80g" /* what cuda:SIZE is like */
#define WAITS_PERCENT  3	  /* of the peak, that may wait for other streams */
#define PROBE_MS       30000
#define DEVICE_MIN     (UINT64_C(1) << 20)
#define RUNS_BESIDE                                                                                \
	4 /* those for each device: without a limit, with classes, without workspaces, with other values */

/* ---- devices ---- */

static const struct {
	const char *word;
	uint64_t bytes;
} cards[] = {
#define CARD(word, name, major, minor, sms, l2, threads, shared, block, mib, context)              \
	{word, UINT64_C(mib) << 20},
#include "simcuda/devices.def"
#undef CARD
};

/* "64G": a size with K, M, G or T. */
static bool read_size(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t bytes;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	bytes = strtoull(text, &end, 10);
	unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
	if (*end != '\0') {
		if (unit == NULL || end[1] != '\0' || bytes > DRY_NO_LIMIT)
			return false;
		bytes <<= 10 * (unit - units + 1);
	}
	*out = bytes;
	return bytes >= DEVICE_MIN && bytes <= DRY_NO_LIMIT;
}

static bool read_device(const char *text, struct dry_device *out)
{
	size_t i;

	if (strlen(text) >= sizeof(out->name))
		return false;
	(void)snprintf(out->name, sizeof(out->name), "%s", text);
	out->card = NULL;
	out->lean = false;
	out->other = false;
	out->number = false;
	out->classes = false;
	for (i = 0; i < sizeof(cards) / sizeof(*cards); i++) {
		if (strcmp(cards[i].word, text) == 0) {
			out->card = cards[i].word;
			out->bytes = cards[i].bytes;
			return true;
		}
	}
	if (strncmp(text, "cuda:", 5) == 0)
		out->card = CARD_OF_A_SIZE;
	else if (strncmp(text, "npu:", 4) != 0)
		return false;
	return read_size(strchr(text, ':') + 1, &out->bytes);
}

static void say_devices(const char *wrong)
{
	struct strbuf list = {0};
	size_t i;

	for (i = 0; i < sizeof(cards) / sizeof(*cards); i++)
		strbuf_addf(&list, "%s, ", cards[i].word);
	cli_say("--device: '%s' is not a device of a dry run; allowed: %snpu:SIZE and cuda:SIZE with K, M, G or T, from 1M to 1T, such as npu:64G",
		wrong, strbuf_str(&list));
	strbuf_fini(&list);
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
					say_devices(word);
				free(list);
				return 0;
			}
			count++;
		}
		free(list);
	}
	for (i = 1; i < count; i++) {
		if ((out[i].card == NULL) != (out[0].card == NULL)) {
			cli_say("--device: %s and %s are of two makers; dry-run them one after the other",
				out[0].name, out[i].name);
			return 0;
		}
	}
	return count;
}

/* ---- refusals before the start ---- */

static bool is_python(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strncmp(slash == NULL ? path : slash + 1, "python", 6) == 0;
}

/* What the probe below prints about a thing, "" if it does not. */
static void read_answer(const char *output, const char *thing, char *out, size_t bytes)
{
	const char *at = output;
	size_t length = strlen(thing);

	out[0] = '\0';
	for (; at != NULL && *at != '\0'; at = strchr(at, '\n'), at += at != NULL) {
		if (strncmp(at, thing, length) == 0 && at[length] == '=')
			(void)snprintf(out, bytes, "%.*s", (int)strcspn(at + length + 1, "\n"),
				       at + length + 1);
	}
}

/* "13.0" is 13000, and "9.19.0.56" with a scale of 100 is 91900. */
static uint32_t read_version(const char *text, uint32_t major, uint32_t minor, uint32_t patch)
{
	char *end;
	uint32_t version = (uint32_t)strtoul(text, &end, 10) * major;

	if (*end == '.')
		version += (uint32_t)strtoul(end + 1, &end, 10) * minor;
	if (*end == '.')
		version += (uint32_t)strtoul(end + 1, &end, 10) * patch;
	return version;
}

/* Asks the interpreter for its packages, without importing them. True after a complaint. */
static bool lacks_torch(const char *python, const struct dry_device *device, struct dry_torch *out)
{
	static const char probe[] =
		"import importlib.util as u, importlib.metadata as m, os, re\n"
		"for n in ('torch', 'torch_npu', 'mindspore'):\n"
		"    s = u.find_spec(n)\n"
		"    if s:\n"
		"        try: v = m.version(n)\n"
		"        except m.PackageNotFoundError: v = '?'\n"
		"        print(n + '=' + v)\n"
		"        if n == 'torch' and s.origin:\n"
		"            d = os.path.dirname(s.origin)\n"
		"            try: t = open(os.path.join(d, 'version.py')).read()\n"
		"            except OSError: t = ''\n"
		"            c = re.search(r\"^cuda\\b.*= *'([0-9.]+)'\", t, re.M)\n"
		"            if c: print('cuda=' + c.group(1))\n"
		"            print('libraries=' + os.path.realpath(os.path.join(d, 'lib')))\n"
		"            try: r = m.requires(n) or []\n"
		"            except m.PackageNotFoundError: r = []\n"
		"            for w in r:\n"
		"                w = re.match(r'nvidia-cudnn-cu\\d+ *\\(?==+ *([0-9.]+)', w)\n"
		"                if w: print('cudnn=' + w.group(1))\n";
	const char *argv[] = {python, "-c", probe, NULL};
	const struct child_variable changes[] = {{"MSMEMSCOPE_DISABLE", "1"}, {NULL, NULL}};
	struct strbuf output = {0};
	char torch[64], npu[64], cuda[64], cudnn[64], mindspore[64];
	bool lacks = false;

	/* An interpreter that cannot say it says more when it runs. */
	if (child_run(argv, changes, PROBE_MS, &output) == 0) {
		const char *text = strbuf_str(&output);

		read_answer(text, "torch", torch, sizeof(torch));
		read_answer(text, "torch_npu", npu, sizeof(npu));
		read_answer(text, "mindspore", mindspore, sizeof(mindspore));
		read_answer(text, "cuda", cuda, sizeof(cuda));
		read_answer(text, "cudnn", cudnn, sizeof(cudnn));
		read_answer(text, "libraries", out->directory, sizeof(out->directory));
		out->cuda = read_version(cuda, 1000, 10, 0);
		out->cudnn = read_version(cudnn, cudnn[0] == '8' ? 1000 : 10000, 100, 1);
		lacks = torch[0] == '\0' || (device->card != NULL ? cuda[0] : npu[0]) == '\0';
		if (torch[0] == '\0' && mindspore[0] != '\0')
			cli_say("%s has MindSpore %s and no torch; dryrun runs programs of PyTorch only: MindSpore cannot train on the simulated NPU",
				python, mindspore);
		else if (torch[0] == '\0')
			cli_say("%s has no torch; dryrun runs PyTorch programs", python);
		else if (device->card != NULL && lacks)
			cli_say("%s has torch %s, which is not built for CUDA; a dry run for %s needs one that is, which needs no card and no CUDA: %s -m pip install --no-deps torch===%.*s (from PyPI, into this environment or a new one)",
				python, torch, device->name, python, (int)strcspn(torch, "+"),
				torch);
		else if (lacks)
			cli_say("%s has torch %s but not torch_npu; a dry run for an NPU needs the torch_npu of the same release (pip install torch_npu==%.*s); for a card of CUDA give --device=h200 or another",
				python, torch, (int)strcspn(torch, "+"), torch);
	} else if (device->card != NULL) {
		lacks = true;
		cli_say("cannot ask %s for its packages: %s", python, strbuf_str(&output));
	}
	strbuf_fini(&output);
	return lacks;
}

/* The interpreter that runs the program: the word itself, or that of its first line. "" if it is not Python. */
static void find_python(const char *path, char *out, size_t bytes)
{
	struct preflight_report report;

	out[0] = '\0';
	if (is_python(path))
		(void)snprintf(out, bytes, "%s", path);
	else if (preflight_inspect(path, &report) == 0 && is_python(report.executed))
		(void)snprintf(out, bytes, "%s", report.executed);
}

/* The option of a launcher that starts several ranks, as "--nproc-per-node=2"; NULL: none is given. */
static const char *find_ranks(const struct options *options)
{
	static const char *const launchers[] = {"torchrun", "torch.distributed.run",
						"torch.distributed.launch", "accelerate",
						"deepspeed"};
	static const char *const names[] = {"--nproc-per-node", "--nproc_per_node",
					    "--num_processes",	"--num-processes",
					    "--num_gpus",	"--nnodes"};
	bool launched = false;
	int at;
	size_t i;

	for (at = 1; at < options->argc; at++) {
		const char *word = options->argv[at], *slash = strrchr(word, '/');

		for (i = 0; i < sizeof(launchers) / sizeof(*launchers); i++)
			launched |= strcmp(slash == NULL ? word : slash + 1, launchers[i]) == 0;
		/* The program's own words follow its name. */
		if (launched && strlen(word) > 3 && strcmp(word + strlen(word) - 3, ".py") == 0)
			return NULL;
		for (i = 0; launched && i < sizeof(names) / sizeof(*names); i++) {
			size_t length = strlen(names[i]);
			const char *count = word + length;

			if (strncmp(word, names[i], length) != 0)
				continue;
			if (*count == '\0' && at + 1 < options->argc)
				count = options->argv[at + 1];
			else if (*count == '=')
				count++;
			if (isdigit((unsigned char)*count) && strtoul(count, NULL, 10) > 1)
				return word;
		}
	}
	return NULL;
}

static bool is_refused(const struct options *options, const struct dry_device *device,
		       struct dry_torch *torch)
{
	const char *ranks = getenv("WORLD_SIZE"), *launcher = find_ranks(options);
	char home[PATH_MAX], path[PATH_MAX], python[PATH_MAX];
	struct mscope_error err = {0};
	struct strbuf library = {0};
	bool refused = true;

	if (preflight_resolve(options->argv[1], path, sizeof(path), &err) < 0 ||
	    tree_prefix(home, sizeof(home), &err) < 0) {
		cli_say("%s", err.message);
		return true;
	}
	find_python(path, python, sizeof(python));
	strbuf_addf(&library, "%s/%s", home,
		    device->card != NULL ? "simcuda/lib64/libsimcuda.so"
					 : "simnpu/lib64/libopapi.so");
	if (access(strbuf_str(&library), R_OK) < 0)
		cli_say("this installation has no simulated %s: %s is missing",
			device->card != NULL ? "CUDA" : "NPU", strbuf_str(&library));
#if !defined(__x86_64__)
	else if (device->card != NULL)
		cli_say("a dry run for a GPU needs x86-64");
#endif
	else if (ranks != NULL && atoi(ranks) > 1)
		cli_say("WORLD_SIZE=%s: a dry run has one rank, because the buffers of collectives are not known; run one rank",
			ranks);
	else if (launcher != NULL)
		cli_say("%s: a dry run has one rank, because the buffers of collectives are not known; run one rank",
			launcher);
	else if (device->card != NULL && python[0] == '\0')
		cli_say("%s is not Python: a dry run for CUDA looks at the PyTorch of the interpreter that it starts; give it as in: msmemscope dryrun --device=%s -- python train.py",
			options->argv[1], device->name);
	else
		refused = python[0] != '\0' && lacks_torch(python, device, torch);
	strbuf_fini(&library);
	return refused;
}

/* ---- the answer ---- */

/* Why the runs answer nothing. True after a complaint. */
static bool is_unanswered(const struct dry_result *run)
{
	const char *device = run->device.card != NULL ? "a card" : "an NPU";

	if (run->processes > 1) {
		cli_say("%u processes used %s: a dry run has one rank, because the buffers of collectives are not known; run one rank",
			run->processes, device);
		return true;
	}
	if (run->waits * 100 > run->needs * WAITS_PERCENT) {
		struct strbuf bytes = {0};

		strbuf_add_size(&bytes, run->waits);
		cli_say("tensors of %s a step are used by other streams (record_stream): when their memory is free again depends on the card's speed, which a dry run does not know",
			strbuf_str(&bytes));
		strbuf_fini(&bytes);
		return true;
	}
	/* A device may be too small for the first tensor. */
	if (run->processes == 1 || dry_ran_out(run))
		return false;
	if (run->stuck != NULL)
		cli_say("the dry run ended at %s", run->stuck);
	else if (run->died_at != NULL)
		cli_say("the program failed at %s, before it used %s%s%s", run->died_at, device,
			run->because == NULL ? "" : ": ", run->because == NULL ? "" : run->because);
	else if (!dry_is_fine(run))
		cli_say("the program failed before it used %s", device);
	else
		cli_say("the program used no memory of %s; its tensors must be PyTorch's, on the device %s",
			device, run->device.card != NULL ? "\"cuda\"" : "\"npu\" (torch_npu)");
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
	return dry_is_whole(answer->figures) && answer->figures->missing_count == 0 &&
			       answer->other == NULL
		       ? MSCOPE_EXIT_OK
		       : MSCOPE_EXIT_FAILED;
}

/*
 * With other values the program needs something else. One that stops for them checks them, and nothing follows from them. Where no size follows,
 * the program may take a way that needs less: the figures are then those of the other one.
 */
static bool differs(const struct dry_result *run, const struct dry_result *other)
{
	return run->numbers && dry_is_whole(other) == dry_is_whole(run)
		       ? other->needs != run->needs || other->reserves != run->reserves
		       : other->needs > run->needs || dry_ran_out(other);
}

/* The program on a device; once more with other numbers where it fails because those that nobody computed are 0. */
static int run_first(const struct options *options, struct dry_device *device,
		     const struct dry_torch *torch, bool shown, struct dry_result *run,
		     struct mscope_error *err)
{
	int r = dry_run(options, device, torch, shown, run, err);

	if (r < 0 || device->number || !dry_wants_number(run))
		return r;
	dry_drop(run);
	device->number = true;
	cli_say("it failed because numbers that were not computed read as 0; once more with %s",
		DRY_NUMBER);
	return dry_run(options, device, torch, false, run, err);
}

/* The runs that say more of the same program on the device of its figures: where its memory is, and how sure the figures are. */
static int run_beside(const struct options *options, const struct dry_torch *torch,
		      struct dry_answer *answer, struct dry_result *runs, size_t *done,
		      struct mscope_error *err)
{
	struct dry_device device = answer->figures->device;
	struct dry_result *figures = &runs[answer->figures - runs], *run = &runs[*done];
	int r;

	device.classes = true;
	r = dry_run(options, &device, torch, false, run, err);
	(*done)++;
	if (r == 0)
		dry_take_classes(figures, run);
	device.classes = false;
	if (r == 0 && figures->workspaces > 0) {
		run = &runs[(*done)++];
		device.lean = true;
		r = dry_run(options, &device, torch, false, run, err);
		answer->lean = run;
		device.lean = false;
	}
	if (r == 0 && (figures->numbers || figures->steers)) {
		run = &runs[(*done)++];
		device.other = true;
		r = dry_run(options, &device, torch, false, run, err);
		if (r == 0 && differs(figures, run))
			answer->other = run;
		else if (r == 0 && dry_is_whole(run) && run->needs < figures->needs)
			figures->at_most = true;
	}
	return r;
}

int cmd_dryrun(const struct options *options)
{
	struct dry_device devices[OPTION_TEXTS_MAX], no_limit;
	struct dry_result runs[OPTION_TEXTS_MAX + RUNS_BESIDE] = {0};
	struct dry_answer answer = {.runs = runs, .figures = runs};
	struct dry_torch *torch = calloc(1, sizeof(*torch));
	struct mscope_error err = {0};
	size_t done = 0, i;
	int code = MSCOPE_EXIT_FAILED, r = torch == NULL ? -ENOMEM : 0;

	answer.count = read_devices(options, devices, OPTION_TEXTS_MAX);
	if (answer.count == 0)
		code = MSCOPE_EXIT_USAGE;
	if (answer.count == 0 || r < 0 || is_refused(options, devices, torch))
		goto out;
	dry_keep_input();
	while (r == 0 && done < answer.count) {
		r = run_first(options, &devices[done], torch, done == 0, &runs[done], &err);
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
		no_limit = (struct dry_device){.bytes = DRY_NO_LIMIT,
					       .card = devices[0].card,
					       .number = devices[answer.count - 1].number};
		(void)snprintf(no_limit.name, sizeof(no_limit.name), "%s:1T",
			       no_limit.card != NULL ? "cuda" : "npu");
		r = run_first(options, &no_limit, torch, false, &runs[done], &err);
		answer.figures = &runs[done++];
		if (r == 0 && is_unanswered(answer.figures))
			goto out;
	}
	if (r == 0)
		r = run_beside(options, torch, &answer, runs, &done, &err);
	if (r < 0)
		cli_say("%s", err.message);
	else
		code = print(options, &answer);
out:
	free(torch);
	for (i = 0; i < done; i++)
		dry_fini(&runs[i]);
	return code;
}
